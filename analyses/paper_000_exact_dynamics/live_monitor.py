"""The closing proposal of paper 000: measures that say, during training, when to evaluate. A monitor is put to the test.

Runs are trained here with a live monitor and announced to us as they go: the linear head with its known times t*,
modular addition, where the test loss drops long after the training loss, and the same with random labels, where it
never does. Quick: 11 runs, six minutes of processor time. Expect: every t* announced, in order, at 1.2 - 2.4 t*; the drop
of the test loss announced at 1.5 - 1.7 of its half-time; no drop of the test loss announced with random labels. These
numbers, and the verdicts that are committed, are of runs with the monitor's budget lifted; the runs are now made with the
default of 1 %, so that what is announced, and when, depends on the machine as it does for everybody.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tqdm import tqdm

import probes
from analyses.paper_000_exact_dynamics.transformer_runs import RUNS, TOY_MODULAR
from analyses.tools.draw import MEASURED, panels
from analyses.tools.page import Page
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, Verdict
from models.linear_icl.model import LinearICL, LinearICLConfig, exact_theory
from models.modular_addition import presets
from models.modular_addition.model import modular_addition
from models.training import Experiment

LINEAR = LinearICLConfig(context=128, learning_rate=0.01)  # slow enough for the first t* to come after 300 steps
SEEDS = {"toy": (2, 1, 1), "quick": (5, 3, 3), "paper": (10, 5, 5)}  # of each kind
STEPS = {"toy": (3500, 500), "quick": (16000, 4000), "paper": (16000, 5000)}  # linear head, modular addition
ANNOUNCED = "#d1603d"


@dataclass(frozen=True)
class Watched:
    """One run, and what was announced while it was trained."""

    losses: dict[str, pd.Series]
    events: list[probes.Event]
    true: dict[str, list[float]]
    """By series, the steps at which something really happened."""
    failure: str | None

    def told(self, series: str) -> list[probes.Event]:
        """The drops that were announced of one series; of a test loss, rises are announced too, and are no stage."""
        return [event for event in self.events if event.metric == series and event.direction == "fall"]

    def pairs(self, series: str) -> list[tuple[float, probes.Event | None]]:
        """Each true step with the announcement nearest to it, if that is within a factor of 1.5."""
        found = []
        for true in self.true.get(series, []):
            near = [event for event in self.told(series) if abs(np.log(event.step / true)) < np.log(1.5)]
            found.append((true, min(near, key=lambda e: abs(np.log(e.step / true))) if near else None))
        return found


Truth = Callable[[Experiment, dict[str, pd.Series]], dict[str, list[float]]]


def watch(
    make: Callable[[Sequence[int]], Experiment], truth: Truth, seed: int, steps: int, budget: float = 0.01
) -> Watched:
    """Train one seed with a monitor. With the budget lifted (1), when looks are made does not depend on the machine."""
    torch.set_num_threads(1)
    experiment = make([seed])
    config, _ = experiment.describe(0)
    logged: dict[str, dict[int, float]] = {}
    kind = {"config": config, "family": experiment.family, "circuits": experiment.circuits}
    with probes.Monitor(lambda: dict(experiment.weights(0)), **kind, probes=["norm"], budget=budget) as monitor:
        for step in range(steps):
            scalars: dict[str, Any] = {name: float(value[0]) for name, value in experiment.update().items()}
            monitor.step(**scalars)
            for name in ("loss", "test_loss"):
                if name in scalars:
                    logged.setdefault(name, {})[step] = scalars[name]
    losses = {name: pd.Series(values) for name, values in logged.items()}
    return Watched(losses, monitor.detected, truth(experiment, losses), str(monitor.failure or "") or None)


def mode_times(experiment: Experiment, losses: dict[str, pd.Series]) -> dict[str, list[float]]:
    """t* of every mode, by the exact theory, in steps; those of which the run lasts twice as long."""
    steps = len(losses["loss"])
    config, theory = experiment.describe(0)
    assert theory is not None
    times = exact_theory(config, theory).half_times / config["learning_rate"]
    return {"loss": [time for time in times.tolist() if 2 * time < steps]}


def drop_of_test_loss(_: Experiment, losses: dict[str, pd.Series]) -> dict[str, list[float]]:
    """When the test loss has come halfway from its highest value to its end."""
    test = losses["test_loss"]
    return {"test_loss": [probes.half_time(test.loc[test.idxmax() :])]}


def nothing(_: Experiment, __: dict[str, pd.Series]) -> dict[str, list[float]]:
    """Nothing happens to the test loss."""
    return {"test_loss": []}


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train with a monitor, draw, judge. Nothing is kept: a run that was read from disk could not be watched live."""
    modular = replace(TOY_MODULAR, test_every=1) if size == "toy" else presets.QUICK
    kinds = {
        "linear head": (partial(LinearICL, LINEAR), mode_times),
        "modular addition": (partial(modular_addition, modular), drop_of_test_loss),
        "random labels": (partial(modular_addition, presets.with_random_labels(modular)), nothing),
    }
    steps = dict(zip(kinds, (STEPS[size][0], STEPS[size][1], STEPS[size][1]), strict=True))
    jobs = [(kind, seed) for (kind, _), count in zip(kinds.items(), SEEDS[size], strict=True) for seed in range(count)]
    jobs.sort(key=lambda job: -steps[job[0]])
    pool: Any = Parallel(n_jobs=1 if size == "toy" else -1, return_as="generator")
    budget = 1.0 if size == "toy" else 0.01  # a toy run is over before there is time for a look
    results: Iterable[Watched] = pool(delayed(watch)(*kinds[kind], seed, steps[kind], budget) for kind, seed in jobs)
    watched: dict[str, list[Watched]] = {kind: [] for kind in kinds}
    for (kind, _), result in zip(jobs, tqdm(results, total=len(jobs), unit="run", disable=None), strict=True):
        watched[kind].append(result)
    return Page(
        "live_monitor",
        "Told while it happens: a live monitor put to the test (closing section)",
        SUMMARY,
        f"linear head with 3 modes, context {LINEAR.context}, {STEPS[size][0]} steps, {SEEDS[size][0]} seeds; addition mod "
        f"{modular.task.modulus}, {STEPS[size][1]} steps, {SEEDS[size][1]} seeds, and {SEEDS[size][2]} with random labels; alpha .01 a series and run",
        draw(watched),
        CAPTION,
        judgements(watched),
    )


SUMMARY = (
    "A monitor that watches the loss, looking each time training has gone on by a tenth, tells of the stages in order, and of nothing "
    "where nothing happens. It says where the loss was half down, which is sure only once the drop is over: the announcement comes about "
    "half of the step later, and in the worst case at more than twice the step."
)
CAPTION = (
    "One seed of each kind. Dashed: when it really happened (t* of each mode by theory; test loss halfway from its top to its end). Dots: "
    "where the monitor said it happened, with its interval. Arrows end where it said so."
)


def draw(watched: dict[str, list[Watched]]) -> Figure:
    """A loss of each kind, with what was true and what was told."""
    figure, axes = panels(1, 3)
    for ax, (kind, series) in zip(
        axes[0],
        {"linear head": "loss", "modular addition": "test_loss", "random labels": "test_loss"}.items(),
        strict=True,
    ):
        _draw_one(ax, watched[kind][0], series)
        ax.set_title(kind)
        ax.set_ylabel(series.replace("_", " "))
    return figure


def _draw_one(ax: Axes, one: Watched, series: str) -> None:
    losses = one.losses[series]
    ax.plot(losses.index + 1, losses, color=MEASURED, linewidth=1.2)
    for number, true in enumerate(one.true[series]):
        ax.axvline(true, color="#888", linestyle="--", linewidth=1.2, label="when it happened" if number == 0 else None)
    for number, event in enumerate(one.told(series)):
        height = float(np.interp(event.step, losses.index, losses))
        ax.plot([event.low, event.high], [height, height], color=ANNOUNCED, linewidth=3, alpha=0.5)
        ax.annotate(
            "",
            xy=(event.detected_at, height),
            xytext=(event.step, height),
            arrowprops={"arrowstyle": "->", "color": ANNOUNCED, "linewidth": 1.5},
        )
        ax.plot(
            event.step, height, "o", color=ANNOUNCED, label="announced, at the arrow's end" if number == 0 else None
        )
    ax.set_xscale("log")
    ax.set_xlabel("step")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False)
    if not one.told(series):
        ax.text(0.03, 0.93, "nothing announced", transform=ax.transAxes, va="top")


def judgements(watched: dict[str, list[Watched]]) -> list[Verdict]:
    """What was told against what was true."""
    linear = [pair for one in watched["linear head"] for pair in one.pairs("loss")]
    modular = [pair for one in watched["modular addition"] for pair in one.pairs("test_loss")]
    extra = [len(one.told("loss")) - sum(e is not None for _, e in one.pairs("loss")) for one in watched["linear head"]]
    in_order = [_is_in_order(one.pairs("loss")) for one in watched["linear head"]]
    silent = [not one.told("test_loss") for one in watched["random labels"]]
    return [
        Verdict(
            "(ours) every t* of the linear head is announced, in order",
            "section 5",
            f"{_count(linear)}; in order in {sum(in_order)} of {len(in_order)} runs. {_timing(linear, 't*')}; t* estimated as half-drop "
            f"+ 1.1 widths: {_ratios([(e.step + 1.1 * e.width) / t for t, e in linear if e])} t*",
            _share(linear, all(in_order)),
            "the loss is half down at about .88 t*",
        ),
        Verdict(
            "(ours) and nothing else is",
            "section 5",
            f"announcements of the loss besides: {sum(extra)} in {len(extra)} runs",
            HOLDS if not any(extra) else IN_PART if np.mean(extra) < 0.5 else FAILS,
            "alpha is .01 a run",
        ),
        Verdict(
            "(ours) the drop of the test loss is announced when modular addition groks",
            "section 5",
            f"{_count(modular)}. {_timing(modular, 'its half-time')}; delays in steps: "
            + ", ".join(f"{e.detected_at - t:.0f}" for t, e in modular if e),
            _share(modular, True),
            "half-time: halfway from the top of the test loss to its end",
        ),
        Verdict(
            "(ours) with random labels no drop of the test loss is announced",
            "section 5",
            f"silent in {sum(silent)} of {len(silent)} runs",
            HOLDS if all(silent) else IN_PART if np.mean(silent) > 0.5 else FAILS,
            "the control: it is learned by heart and never understood",
        ),
    ]


Pairs = list[tuple[float, probes.Event | None]]


def _is_in_order(pairs: Pairs) -> bool:
    when = [event.detected_at for _, event in pairs if event]
    return when == sorted(when)


def _count(pairs: Pairs) -> str:
    return f"{sum(event is not None for _, event in pairs)} of {len(pairs)} announced"


def _timing(pairs: Pairs, what: str) -> str:
    return f"announced at {_ratios([event.detected_at / true for true, event in pairs if event])} of {what}"


def _ratios(values: list[float]) -> str:
    return f"{np.median(values):.2f} ({min(values):.2f} - {max(values):.2f})" if values else "(none)"


def _share(pairs: Pairs, besides: bool) -> str:
    told = np.mean([event is not None for _, event in pairs]) if pairs else 0.0
    return HOLDS if told == 1 and besides else IN_PART if told >= 0.5 else FAILS
