"""Killed around a cliff and resumed: is it announced, and how late? `python -m benchmarks.monitor_resume`.

A loss falls at a known step, as a logistic curve under noise. The training is killed at ten places around it, goes back
to its last checkpoint (one in every 50 steps) and goes on, in three ways:

    state     from the monitor's state, kept in the checkpoint
    run       from the run directory of a monitor that was told to terminate
    killed    from the run directory of a process that got a SIGKILL: what was in its buffers is lost
    lost      the same, as if all of the last 64 steps before the kill had been in buffers: more than a monitor holds
              back, whatever it is handed. Printed, and not part of the claim

The delay of an announcement is counted from the cliff and compared with that of the training that was not killed.
"""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import numpy as np
import torch

import probes
from checkpoints.layout import METRICS_FILE

_EVERY = 50
_LOST = 64
_NOISE = 0.03


def run(cliffs: tuple[int, ...] = (1000, 3000), places: int = 10) -> None:
    """Print the delays, and whether the claim holds: announced every time, at most 1.2 times as late."""
    print("Killed at ten places around a cliff of the loss and resumed: delays of its announcement, in steps")
    holds = True
    for cliff in cliffs:
        values = losses(cliff)
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder) / "whole"
            unbroken = [event.delay for event in watched(values, whole).detected]
            print(f"  cliff at {cliff}: not killed, announced after {_listed(unbroken)}")
            for way in ("state", "run", "killed", "lost"):
                delays = []
                for number, place in enumerate(np.linspace(0.96, 1.04, places)):
                    killed_at = round(cliff * place)
                    found = resumed(values, killed_at, Path(folder) / f"{way}{number}", way)
                    delays.append(found[0] if len(found) == 1 else float("nan"))
                holds &= way == "lost" or all(delay <= 1.2 * unbroken[0] for delay in delays)
                print(f"    {way:7} {_listed(delays)}")
    print("announced every time, at most 1.2 times as late" if holds else "NOT announced every time, or too late")


def losses(cliff: int) -> np.ndarray:
    """A fall by 1 within a few per cent of the step, under noise."""
    steps = np.arange(round(2.2 * cliff))
    noise = np.random.default_rng(cliff).normal(0, _NOISE, len(steps))
    return 3.0 - 1.0 / (1.0 + np.exp(-(steps - cliff) / (0.01 * cliff))) + noise


def watched(values: np.ndarray, folder: Path | None, step: int = 0, until: int | None = None) -> probes.Monitor:
    """A monitor that saw the losses from a step on; closed where it saw all of them."""
    monitor = begun(folder, step)
    for loss in values[step:until]:
        monitor.step(loss=float(loss))
    if until is None:
        monitor.close()
    return monitor


def begun(folder: Path | None, step: int) -> probes.Monitor:
    """A monitor of some weights that do not matter here."""
    model = torch.nn.MultiheadAttention(16, 2)
    return probes.Monitor(model, run=folder, step=step, probes=["norm"], schedule=500, budget=1.0, checkpoints=False)


def resumed(values: np.ndarray, killed_at: int, folder: Path, way: str) -> list[float]:
    """The delays of what was announced in all, by a monitor that was killed and one that went on."""
    saved_at = killed_at // _EVERY * _EVERY
    if way == "state":
        first = watched(values, None, until=saved_at)
        state = first.state_dict()
        first.break_off()
        second = begun(None, saved_at)
        second.load_state_dict(state)
    else:
        if way == "killed":
            _killed(values, folder, killed_at)
        else:
            watched(values, folder, until=killed_at).break_off()
        if way == "lost":
            _lose(folder / METRICS_FILE, killed_at - _LOST)
        copy = folder.with_name(folder.name + "-resumed")
        shutil.copytree(folder, copy)
        second = begun(copy, saved_at)
    for loss in values[saved_at:]:
        second.step(loss=float(loss))
    second.close()
    return [event.delay for event in second.detected]


def _killed(values: np.ndarray, folder: Path, at: int) -> None:
    """A process that monitors up to a step, and is killed there."""
    process = os.fork()
    if process == 0:
        _kept = watched(values, folder, until=at)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


def _lose(metrics: Path, last: int) -> None:
    """Cut off the lines of steps after this one."""
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:last]))


def _listed(delays: list[float]) -> str:
    return ", ".join("never" if delay != delay else f"{delay:.0f}" for delay in delays) or "never"


if __name__ == "__main__":
    run()
