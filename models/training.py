"""The one training loop: progress bar (on a terminal), metrics, checkpoints, resuming, several seeds at once.

An `Experiment` trains one or more seeds of a model as one batched computation and knows nothing of files. The loop
writes one run directory per seed. Step k means "after k updates": the weights saved at step k are those on which the
loss logged at step k was measured.

A run that was killed and is started again continues bit for bit: at every checkpoint the experiment's whole state -
weights, optimizer, generators, place in the data stream - is kept beside the weights.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from tqdm import tqdm

from checkpoints import RunWriter


@runtime_checkable
class Experiment(Protocol):
    """A model in training, for several seeds at once."""

    @property
    def family(self) -> str:
        """Which kind of model this is; readers of the run go by it."""
        ...

    @property
    def circuits(self) -> Mapping[str, Any] | None:
        """How its circuits are made of the weights saved (see `checkpoints.circuits`); None for attention heads."""
        ...

    @property
    def seeds(self) -> Sequence[int]:
        """The seeds that are trained, each of which is one run."""
        ...

    @property
    def threads(self) -> int:
        """Torch threads to train with: part of what makes a run reproducible to the last bit."""
        ...

    def describe(self, index: int) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """The config of one seed's run, and how its checkpoints relate to theory (None if there is none)."""
        ...

    def update(self) -> Mapping[str, Tensor]:
        """One update of every seed; scalars [seeds] measured just before it, the loss among them."""
        ...

    def weights(self, index: int) -> Mapping[str, Tensor]:
        """The weights of one seed, as they are saved."""
        ...

    def state(self, index: int) -> Mapping[str, Tensor]:
        """All that one seed needs to go on."""
        ...

    def restore(self, states: Sequence[Mapping[str, Tensor]]) -> None:
        """Go back to the given states, one per seed."""
        ...


class DivergedError(RuntimeError):
    """The loss is no longer a number."""


def train(
    make: Callable[[Sequence[int]], Experiment],
    seeds: Sequence[int],
    directory: str | Path,
    name: str,
    steps: int,
    schedule: Sequence[int],
    *,
    quiet: bool = False,
) -> list[Path]:
    """Train every seed for `steps` updates, or finish what an earlier call began; the run directories, one per seed.

    `make` builds the experiment for the seeds that are not finished yet.
    """
    seeds = list(seeds)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds is {seeds}: at least one, and each only once, is expected")
    paths = {seed: Path(directory) / f"{name}-seed{seed}" for seed in seeds}
    writers: dict[int, RunWriter] = {}
    threads = torch.get_num_threads()
    try:
        every = make(seeds)
        for i, (seed, path) in enumerate(paths.items()):
            config, theory = every.describe(i)
            kind = {"family": every.family, "theory": theory, "circuits": every.circuits}
            writers[seed] = RunWriter(path, config, name=path.name, seed=seed, **kind, resume=True)
        unfinished = [seed for seed, writer in writers.items() if not _is_finished(writer, steps)]
        if unfinished:
            experiment = every if unfinished == seeds else make(unfinished)
            torch.set_num_threads(experiment.threads)
            _run(experiment, [writers[seed] for seed in unfinished], name, steps, set(schedule) | {steps}, quiet)
    finally:
        torch.set_num_threads(threads)
        for writer in writers.values():
            writer.close()
    return list(paths.values())


def _is_finished(writer: RunWriter, steps: int) -> bool:
    latest = max(writer.resume_steps(), default=0)
    if latest > steps:
        raise ValueError(
            f"{writer.path} already has {latest} steps, more than the {steps} asked for: "
            "ask for at least as many, or choose another directory"
        )
    return latest == steps


def _run(
    experiment: Experiment, writers: Sequence[RunWriter], name: str, steps: int, keep: set[int], quiet: bool
) -> None:
    start = _resume(experiment, writers)
    with tqdm(total=steps, initial=start, desc=name, unit="step", disable=quiet or None) as progress:
        for step in range(start, steps + 1):
            if step == 0 or (step in keep and step != start):
                _save(experiment, writers, step)
            if step == steps:
                break
            _log(experiment.update(), writers, step)
            progress.update()


def _resume(experiment: Experiment, writers: Sequence[RunWriter]) -> int:
    """The latest step that every seed can go on from; the experiment is put back to it. 0 to begin (again)."""
    common = set.intersection(*(set(writer.resume_steps()) for writer in writers))
    states, start = _latest_readable(writers, sorted(common, reverse=True))
    for writer in writers:
        writer.go_back(start if states else -1)
    if states:
        experiment.restore(states)
    return start


def _latest_readable(writers: Sequence[RunWriter], steps: Sequence[int]) -> tuple[list[dict[str, Tensor]], int]:
    """The states of the first of these steps whose files are whole, and that step; nothing and 0 if there are no steps.

    Only reading may fail here. Where every state is damaged that is an error: what is there is not thrown away.
    """
    damaged = None
    for step in steps:
        try:
            return [writer.resume_state(step) for writer in writers], step
        except ValueError as error:
            damaged = error
    if damaged:
        raise ValueError(f"no state to resume from is readable, last: {damaged}. Delete the run to train it again")
    return [], 0


def _save(experiment: Experiment, writers: Sequence[RunWriter], step: int) -> None:
    for i, writer in enumerate(writers):
        writer.save(step, experiment.weights(i))
    for i, writer in enumerate(writers):  # only once all weights are there: the states must not run ahead of each other
        writer.save_resume(step, experiment.state(i))


def _log(scalars: Mapping[str, Tensor], writers: Sequence[RunWriter], step: int) -> None:
    values = {key: value.tolist() for key, value in scalars.items()}
    for i, writer in enumerate(writers):
        writer.log(step, **{key: numbers[i] for key, numbers in values.items()})
    for number, writer in zip(values["loss"], writers, strict=True):
        if not math.isfinite(number):
            raise DivergedError(
                f"{writer.path.name}: the loss is {number} at step {step}. The learning rate is too large for this "
                f"setting; try half of it. The checkpoints up to here are kept in {writer.path}"
            )
