"""Small runs in which something happens, and their pages: what the tests of the report share."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import probes
from checkpoints import Run, RunWriter, open_run

WIDTH, HEAD, LAYERS, HEADS = 12, 3, 2, 2
STEPS = [0, *sorted({round(10**x) for x in np.linspace(0.3, 3.2, 42)})]
HAPPENS = 300.0
PROBES = ("norm", "effective_rank", "subspace_distance")

ROOT = Path(__file__).parents[1]
CONFIG = {"model_type": "gpt2", "n_head": HEADS, "n_embd": WIDTH, "n_layer": LAYERS}


def weights(step: int, *, seed: int = 0, broken: tuple[int, ...] = ()) -> dict[str, torch.Tensor]:
    """A GPT-2 shape whose heads of layer 1 gain one direction around step 300; all else only drifts."""
    rng = np.random.default_rng(seed)
    late = float(1 / (1 + np.exp(-6 * (np.log(max(step, 1)) - np.log(HAPPENS)))))
    tensors = {}
    for layer in range(LAYERS):
        for name, columns in (("c_attn", 3 * WIDTH), ("c_proj", WIDTH)):
            begin, drift = rng.standard_normal((WIDTH, columns)), rng.standard_normal((WIDTH, columns))
            direction = np.outer(rng.standard_normal(WIDTH), rng.standard_normal(columns))
            own = np.random.default_rng([seed, step, layer, columns])  # noise of its own at every step
            noise = 0.01 * own.standard_normal((WIDTH, columns))
            value = begin + 0.05 * np.log1p(step) * drift + (2.5 * late * direction if layer == 1 else 0) + noise
            if layer in broken:
                value = np.zeros_like(value)
            tensors[f"h.{layer}.attn.{name}.weight"] = torch.tensor(value, dtype=torch.float32)
    return tensors


def write_run(path: Path, steps: list[int] = STEPS, *, metrics: bool = True, **options) -> Run:
    """The run on disk, with a loss that falls at the same step and a learning rate that is cut once."""
    with RunWriter(path, config=CONFIG, family="gpt2") as writer:
        rng = np.random.default_rng(7)
        saved = set(steps)
        for step in range(max(steps) + 1):
            if metrics and step:
                late = 1 / (1 + np.exp(-8 * (np.log(step) - np.log(HAPPENS))))
                loss = 4 - 2 * late + 0.02 * rng.standard_normal()
                writer.log(step, loss=loss, learning_rate=1e-3 if step < 1200 else 1e-4)
            if step in saved:
                writer.save(step, weights(step, **options))
    return open_run(path)


@dataclass(frozen=True)
class Prepared:
    """A run with what was measured and found in it."""

    run: Run
    table: pd.DataFrame
    events: pd.DataFrame


def prepared(path: Path) -> Prepared:
    write_run(path)
    return Prepared(*table_and_events(path))


def table_and_events(path: Path) -> tuple[Run, pd.DataFrame, pd.DataFrame]:
    """Of a run on disk, with few probes, so that it takes a second."""
    run = open_run(path)
    table = probes.measure(run, probes=PROBES)
    return run, table, probes.find_events(table, run.metrics[["loss"]])
