"""One way of laying out checkpoints: how it is saved, what is then true, and whether that is what is opened."""

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, chdir, nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from checkpoints import Run, open_run
from probes import singular_values
from probes.circuits import circuits_of
from tests import small_gpt2

State = dict[str, torch.Tensor]
HEADS = {"n_head": 2}
BY_HAND = "by hand, as {} writes it"


@dataclass(frozen=True)
class Layout:
    """A layout. save writes it into an empty folder and gives the state dict of every step.

    unit is what its numbers count; says is part of what a reader must be told; opening are settings of open_run that
    its names cannot do without; serve puts the folder on a server and gives its address and more such settings.
    """

    name: str
    saved_by: str
    save: Callable[[Path], Mapping[int, State]]
    unit: str = "step"
    says: str = ""
    opening: Mapping[str, Any] = field(default_factory=dict)
    serve: Callable[[Path], AbstractContextManager[tuple[str | Path, Mapping[str, Any]]]] | None = None


@dataclass(frozen=True)
class Judged:
    """What became of a layout. error: of the singular values of one head's OV circuit, relative to the largest."""

    layout: Layout
    steps: tuple[int, ...] = ()
    error: float = np.inf
    failure: str = ""

    @property
    def opens(self) -> bool:
        """Whether everything is as it was saved."""
        return not self.failure


@cache
def weights(step: int) -> State:
    """The small GPT-2 of a step."""
    return small_gpt2.state(step)


def judge(layout: Layout, folder: Path) -> Judged:
    """Save it, open it, compare steps, unit, notices and one spectrum with the truth."""
    folder.mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with chdir(folder):
            truth = layout.save(folder)
    served = layout.serve(folder) if layout.serve else nullcontext((folder, {}))
    try:
        with warnings.catch_warnings(), served as (source, settings):
            warnings.simplefilter("ignore")
            run = open_run(source, **{"config": HEADS} | dict(layout.opening) | dict(settings))
            return _compared(layout, run, truth)
    except Exception as error:  # whatever it is, it is the row of this layout
        return Judged(layout, failure=f"{type(error).__name__}: {str(error).replace(str(folder), 'PATH')}")


def _compared(layout: Layout, run: Run, truth: Mapping[int, State]) -> Judged:
    steps, error, wrong = tuple(run.steps), 0.0, []
    if list(steps) != sorted(truth):
        wrong.append(f"steps are {list(steps)}, {sorted(truth)} were saved")
    else:
        error = max(abs(ov_of(run, step) - ov(truth[step])).max() / ov(truth[step]).max() for step in steps)
        if error > 1e-5:
            wrong.append(f"the spectrum is off by {error:.1e}")
    if run.step_unit != layout.unit:
        wrong.append(f"the numbers are said to be {run.step_unit}s")
    if layout.says not in " ".join(run.notices):
        wrong.append(f"{layout.says!r} is not said: {run.notices}")
    return Judged(layout, steps, error, "; ".join(wrong))


def ov_of(run: Run, step: int) -> np.ndarray:
    """Singular values of OV, second layer, first head, as they are measured."""
    circuit = circuits_of(run, ("ov",))["ov"]
    return np.asarray(singular_values(circuit.read(run.checkpoint(step), 1)))[0]


def ov(state: State) -> np.ndarray:
    """The same from the weights of a GPT-2, multiplied out by hand."""
    fused = state["transformer.h.1.attn.c_attn.weight"].double().numpy()
    out = state["transformer.h.1.attn.c_proj.weight"].double().numpy()
    return np.linalg.svd(fused[:, 32:40] @ out[:8], compute_uv=False)[:8]


def torch_saved(
    pattern: str, *steps: int, wrap: Callable[[State, int], Any] | None = None, beside: tuple[str, ...] = (), **options
) -> Callable[[Path], Mapping[int, State]]:
    """Files of torch.save under these names; wrap puts the state dict into what a trainer keeps."""

    def save(folder: Path) -> Mapping[int, State]:
        for step in steps:
            path = folder / pattern.format(step)
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(wrap(weights(step), step) if wrap else weights(step), path, **options)
        for name in beside:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(weights(steps[-1]), path)
        return {step: weights(step) for step in steps}

    return save


def config_into(*folders: Path) -> None:
    """The model's config.json."""
    for folder in folders:
        os.makedirs(folder, exist_ok=True)
        small_gpt2.CONFIG.to_json_file(folder / "config.json")
