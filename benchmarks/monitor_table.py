"""What a new user of the monitor meets, row by row: `python -m benchmarks.monitor_table` (a minute).

Every row is tried, not quoted: the HF Trainer's defaults, watch on a monitored loop, scalars with other names than
loss, values that are not numbers, and the ways in which sinks may be given.
"""

import io
import logging
import math
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

import probes
from probes.monitor.sinks import CSV, RunDirectory, made_sinks
from probes.watch import once, view

STEPS, CLIFF = 1100, 700
UPDATE = 0.01  # seconds: without any training time there is no budget either


def _model() -> torch.nn.Module:
    import transformers

    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=20, n_positions=8)
    )


class _Heard(logging.Handler):
    """What the monitor says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.lines.append(record.getMessage())


def _announced(scalars: Callable[[int], dict[str, Any]]) -> str:
    """What is announced of these scalars."""
    with probes.Monitor(_model(), probes=["norm"]) as monitor:
        for step in range(STEPS):
            time.sleep(UPDATE)
            monitor.step(**scalars(step))
    return "; ".join(str(event) for event in monitor.detected) or "nothing is announced"


def _trainer(heard: _Heard) -> str:
    """What the Trainer's defaults are told, for 3000 updates."""
    import transformers

    from probes.monitor.callbacks.huggingface import MonitorCallback

    arguments = transformers.TrainingArguments("unused", use_cpu=True, report_to=[])
    state = transformers.TrainerState(max_steps=3000, logging_steps=int(arguments.logging_steps))
    heard.lines.clear()
    MonitorCallback().on_train_begin(arguments, state, transformers.TrainerControl(), model=_model())
    return heard.lines[0] if heard.lines else "nothing is said"


def _watched(folder: Path, noise: list[float]) -> str:
    """What watch shows of a loop with run=..., in few words."""
    with probes.Monitor(_model(), run=folder / "run") as monitor:
        for step in range(STEPS):
            monitor.step(loss=3 - (step >= CLIFF) + noise[step])
    console = Console(width=100, file=io.StringIO(), highlight=False)
    console.print(view(once(folder / "run")))
    text = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    wanted = {"a loss": "loss", "events": "transitions (", "heads": "of the heads that changed most"}
    return ", ".join(f"{what}: {'yes' if said in text else 'no'}" for what, said in wanted.items())


def _sink(make: Callable[[], object]) -> str:
    """What comes of it."""
    try:
        return f"works ({make()})"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def run() -> None:
    """Print the rows."""
    heard = _Heard()
    logger = logging.getLogger("probes.monitor")
    logger.addHandler(heard)
    logger.propagate = False
    noise = np.random.default_rng(0).normal(0, 0.02, STEPS).tolist()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = {
            "HF Trainer with its defaults, 3000 updates": _trainer(heard),
            "watch on a monitored loop with run=": _watched(folder, noise),
            f"a scalar called ce, cliff at {CLIFF}": _announced(lambda step: {"ce": 3 - (step >= CLIFF) + noise[step]}),
            f"accuracy that rises at {CLIFF}": _announced(
                lambda step: {"accuracy": 0.8 * (step >= CLIFF) + noise[step]}
            ),
            f"a loss that is NaN from {CLIFF} on": _announced(
                lambda step: {"loss": math.nan if step >= CLIFF else 3 + noise[step]}
            ),
            "sinks=CSV(...)": _sink(lambda: type(made_sinks(CSV(folder / "csv"), "live")[0]).__name__),
            'sinks=["tensorboard"]': _sink(lambda: type(made_sinks(["tensorboard"], "live", folder)[0]).__name__),
            'sinks=["tensorbord"]': _sink(lambda: made_sinks(["tensorbord"], "live")),
            'RunDirectory("path")': _sink(lambda: type(RunDirectory(folder / "mine")).__name__),
        }
    for what, found in rows.items():
        print(f"{what:45s} {found}")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    run()
