"""The closing proposal of paper 000: measures that say, during training, when to evaluate. A monitor is put to the test.

Runs are trained here with a live monitor at its defaults (a budget of 1 %, all probes, no worker) and announced to us as
they go: the linear head with its known times t*; attention-only models that begin to learn in context, with models of
one layer that never do; modular addition, where the test loss drops long after the training loss, and the same with
random labels, where it never does. What is looked at, and when, depends on the machine at such a budget, as it does for
everybody. Quick: 16 runs, about five minutes of one core. Expect: see VERDICTS_LIVE.md. A toy run is over before there
is time for a look: its budget is lifted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
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
from analyses.paper_000_exact_dynamics import live_monitor_claims as claims
from analyses.paper_000_exact_dynamics.live_monitor_claims import CLAIMS, WATCHED, Runs, Watched
from analyses.paper_000_exact_dynamics.transformer_runs import RUNS, TOY_ATTENTION, TOY_MODULAR
from analyses.tools.claims import judged
from analyses.tools.draw import MEASURED, panels
from analyses.tools.page import Page
from models.attention_only.model import attention_only
from models.attention_only.presets import SMALL
from models.linear_icl.model import LinearICL, LinearICLConfig, exact_theory
from models.modular_addition import presets
from models.modular_addition.model import modular_addition
from models.training import Experiment

LINEAR = LinearICLConfig(context=128, learning_rate=0.01)  # slow enough for the first t* to come after 300 steps
SEEDS = {"toy": (1, 1, 1, 1, 1), "quick": (5, 3, 3, 3, 2), "paper": (10, 6, 6, 5, 5)}  # of each kind
STEPS = {"toy": (1000, 150, 150), "quick": (16000, 2500, 3500), "paper": (16000, 2500, 5000)}
"""Of the linear head, attention-only models and modular addition."""
DEFAULT = 0.01
ANNOUNCED = "#d1603d"

Truth = Callable[[Experiment, dict[str, pd.Series]], dict[str, list[float]]]


def watch(
    make: Callable[[Sequence[int]], Experiment], truth: Truth, seed: int, steps: int, budget: float = DEFAULT
) -> Watched:
    """Train one seed with a monitor. With the budget lifted (1), when looks are made does not depend on the machine."""
    torch.set_num_threads(1)
    experiment = make([seed])
    config, _ = experiment.describe(0)
    logged: dict[str, dict[int, float]] = {}
    kind = {"config": config, "family": experiment.family, "circuits": experiment.circuits}
    with probes.Monitor(lambda: dict(experiment.weights(0)), **kind, budget=budget) as monitor:
        for step in range(steps):
            scalars: dict[str, Any] = {name: float(value[0]) for name, value in experiment.update().items()}
            monitor.step(**scalars)
            for name in WATCHED.values():
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


def rise_of_accuracy(_: Experiment, losses: dict[str, pd.Series]) -> dict[str, list[float]]:
    """When the accuracy on repeated tokens, averaged over 25 steps, has come halfway to its end."""
    accuracy = losses["accuracy_repeated"]
    smooth = np.convolve(accuracy, np.ones(25) / 25, "valid")
    return {"accuracy_repeated": [probes.half_time(smooth, accuracy.index[12:-12], start=0.0)]}


def nothing(_: Experiment, __: dict[str, pd.Series]) -> dict[str, list[float]]:
    """Nothing happens."""
    return {}


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train with a monitor, draw, judge. Nothing is kept: a run that was read from disk could not be watched live."""
    kinds = _kinds(size)
    jobs = [(kind, seed) for kind, count in zip(kinds, SEEDS[size], strict=True) for seed in range(count)]
    pool: Any = Parallel(n_jobs=1 if size == "toy" else -1, return_as="generator")
    budget = 1.0 if size == "toy" else DEFAULT
    results: Iterable[Watched] = pool(
        delayed(watch)(*kinds[kind][:2], seed, kinds[kind][2], budget) for kind, seed in jobs
    )
    watched: dict[str, list[Watched]] = {kind: [] for kind in kinds}
    for (kind, _), result in zip(jobs, tqdm(results, total=len(jobs), unit="run", disable=None), strict=True):
        watched[kind].append(result)
    counts = dict(zip(kinds, SEEDS[size], strict=True))
    return Page(
        "live_monitor",
        "Told while it happens: a live monitor put to the test (closing section)",
        SUMMARY,
        f"linear head with 3 modes, context {LINEAR.context}, {STEPS[size][0]} steps; attention-only models of 2 layers and of one, "
        f"{STEPS[size][1]} steps; modular addition, {STEPS[size][2]} steps, and with random labels; runs: "
        f"{', '.join(f'{kind} {count}' for kind, count in counts.items())}; monitor at "
        f"{'a lifted budget' if size == 'toy' else 'its defaults'}, alpha .01 a series and run",
        draw(watched),
        CAPTION,
        judged(CLAIMS, watched),
    )


Kind = tuple[Callable[[Sequence[int]], Experiment], Truth, int]


def _kinds(size: str) -> dict[str, Kind]:
    """How each kind of run is made, what is true of it, and how many steps it takes."""
    linear, attention, modular = STEPS[size]
    attends = TOY_ATTENTION if size == "toy" else SMALL
    adds = replace(TOY_MODULAR, test_every=1) if size == "toy" else presets.QUICK
    by_heart = presets.with_random_labels(adds)
    return {
        claims.LINEAR: (partial(LinearICL, LINEAR), mode_times, linear),
        claims.ATTENTION: (partial(attention_only, attends), rise_of_accuracy, attention),
        claims.ONE_LAYER: (partial(attention_only, replace(attends, n_layers=1)), nothing, attention),
        claims.MODULAR: (partial(modular_addition, adds), drop_of_test_loss, modular),
        claims.RANDOM: (partial(modular_addition, by_heart), nothing, modular),
    }


SUMMARY = (
    "A monitor at its defaults, which takes 1 % of the training time and leaves out what it cannot pay for, tells of the stages of small "
    "models while they train. It says where the curve was half way, which is sure only once the change is over: the announcement comes "
    "about half of the step later, and later still where looks were left out."
)
CAPTION = (
    "One seed of each kind. Dashed: when it really happened (t* of each mode by theory; accuracy halfway to its end; test loss "
    "halfway from its top to its end). Dots: "
    "where the monitor said it happened, with its interval. Arrows end where it said so."
)


def draw(watched: Runs) -> Figure:
    """A series of each kind, with what was true and what was told."""
    figure, axes = panels(1, 4)
    shown = {**WATCHED, claims.RANDOM: "test_loss"}
    for ax, (kind, series) in zip(axes[0], shown.items(), strict=True):
        _draw_one(ax, watched[kind][0], series)
        ax.set_title(kind)
        ax.set_ylabel(series.replace("_", " "))
    return figure


def _draw_one(ax: Axes, one: Watched, series: str) -> None:
    losses = one.losses[series]
    ax.plot(losses.index + 1, losses, color=MEASURED, linewidth=1.2)
    for number, true in enumerate(one.true.get(series, [])):
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
