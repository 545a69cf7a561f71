"""Fig 2 of paper 004: how linear attention learns many sparse tasks, and how well its closed forms describe that.

Trains 100 tasks at two context lengths, five data sets each (about 20 s on one core at size quick). Expect: gradient
descent on the full flow to a fraction of a percent; Theorem 3.1 within 1 % of Lambda from psi = 100 on and 20 % off at
psi = 5; its form on the leading eigenvector of H within 0.1 % everywhere.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from analyses.paper_004_sparse_tasks.runs import RUNS, SEEDS, Group, train_group
from analyses.tools.draw import EXACT, PRINTED, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.verdicts import HOLDS, Verdict, judge, percent, spread
from models.multitask_sparse.model import MultitaskConfig
from models.multitask_sparse.task import PowerLaw, power_law_tasks
from models.multitask_sparse.theory import (
    Corrected,
    FirstOrder,
    FullFlow,
    PrintedFirstOrder,
    TaskFlow,
    ZerothOrder,
    aligned_start,
    uniform_start,
)
from probes import align

CONTEXTS = (5.0, 100.0)
LENGTHS = np.geomspace(5, 1000, 12)
STRENGTH, INIT = 0.5, 0.01
FAR = 4.0  # w = 5 v, a start at which the constant C matters
SHOWN = (0, 1, 3)  # tasks whose outputs are drawn


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, lay the theories over, draw, judge."""
    groups = {psi: _group(psi, size, runs) for psi in CONTEXTS}
    errors = closed_form_errors()
    config = groups[100.0].config
    return Page(
        "sparse_solution",
        "Many sparse tasks: the solution and its corrections (Fig 2)",
        "Each task follows a flow of its own, and that flow has an exact solution by quadrature. Theorem 3.1 replaces H by a "
        "rank-one matrix: good for long contexts, poor for short ones. Taking the leading eigenvector of H itself keeps the "
        "closed form and is accurate at every length; the printed first-order term makes matters worse, because its "
        "constants of integration are missing.",
        f"{config.tasks} tasks, α = {config.alpha}, Λ = {config.strength}, data sets of {config.data} prompts, start "
        f"{config.init} (w 10 % larger), learning rate {config.learning_rate}, full-batch descent, {len(groups[100.0].runs)} seeds",
        draw(groups, errors),
        "Left: test loss of trained models (colour, all seeds), Theorem 3.1 (dashed) and the corrected closed form (black). "
        "Middle: outputs f/Λ of the 1st, 2nd and 4th task at ψ = 5, with the same theories. Right: largest error of each "
        "closed form against the full flow over the whole of training, as a fraction of Λ.",
        judgements(groups, errors),
    )


def closed_form_errors() -> dict[str, np.ndarray]:
    """Largest error against the full flow, over Lambda, by closed form and context length."""
    near, far = partial(uniform_start, init=INIT), partial(uniform_start, init=INIT, offset=FAR)
    along = partial(aligned_start, output=0.01, offset=0.1)
    forms: dict[str, tuple[type[TaskFlow], Callable]] = {
        "Theorem 3.1": (ZerothOrder, near),
        "corrected": (Corrected, near),
        "Theorem 3.1, aligned start": (ZerothOrder, along),
        "first order, printed": (PrintedFirstOrder, along),
        "first order": (FirstOrder, along),
        "Theorem 3.1, far start": (ZerothOrder, far),
        "Theorem 3.1 with Eq 40, far start": (WithEquation40, far),
    }
    found: dict[str, list[float]] = {name: [] for name in forms}
    for psi in LENGTHS:
        tasks = power_law_tasks(PowerLaw(1.8), 1, float(psi), STRENGTH)
        times = np.concatenate(([0], np.geomspace(1e-3, 1e3, 1500))) / psi
        for name, (kind, start) in forms.items():
            v, w = start(tasks)
            difference = kind(tasks, v, w).modes(times) - FullFlow(tasks, v, w).modes(times)
            found[name].append(float(np.abs(difference).max()) / STRENGTH)
    return {name: np.array(values) for name, values in found.items()}


class WithEquation40(ZerothOrder):
    """Theorem 3.1 with C = g h, as the first half of Eq 40 says, instead of g h / 2."""

    def _project(self, along, weight, rate) -> None:
        super()._project(along, weight, rate)
        self.constant = 2 * self.constant


def draw(groups: dict[float, Group], errors: dict[str, np.ndarray]):
    """Loss, outputs and errors."""
    figure, axes = panels(1, 3, height=4.2)
    for (psi, group), colour in zip(groups.items(), mode_colours(2), strict=True):
        axes[0, 0].plot(group.times[1:], group.test_losses[:, 1:].T, color=colour, linewidth=1.5, alpha=0.7)
        axes[0, 0].plot([], [], color=colour, label=f"trained, ψ = {psi:g}")
        times = np.geomspace(group.times[1], group.times[-1], 120)
        for kind, style in ((ZerothOrder, PRINTED), (Corrected, EXACT)):
            label = {ZerothOrder: "Theorem 3.1", Corrected: "corrected"}[kind] if psi == CONTEXTS[0] else None
            axes[0, 0].plot(times, group.flow(kind).test_loss(times), **style, label=label)
    axes[0, 0].set(xscale="log", yscale="log", xlabel="time t", ylabel="test loss", title="many tasks at once")
    group = groups[5.0]
    steps = list(group.runs[0].steps)
    for task, colour in zip(SHOWN, mode_colours(len(SHOWN)), strict=True):
        values = [outputs(group, step)[task] for step in steps]
        axes[0, 1].plot(
            group.config.learning_rate * np.array(steps),
            values,
            "o",
            color=colour,
            markersize=4,
            label=f"task {task + 1}",
        )
        times = np.geomspace(0.05, group.times[-1], 200)
        for kind, style in ((ZerothOrder, PRINTED), (Corrected, EXACT)):
            axes[0, 1].plot(times, group.flow(kind).modes(times)[:, task] / STRENGTH, **style)
    axes[0, 1].set(xscale="log", xlim=(0.05, None), xlabel="time t", ylabel="f / Λ", title="single tasks, ψ = 5")
    markers = {
        "Theorem 3.1": "o--",
        "corrected": "o-",
        "Theorem 3.1, aligned start": "s--",
        "first order, printed": "s:",
        "first order": "s-",
    }
    for (name, marker), colour in zip(markers.items(), mode_colours(5), strict=True):
        axes[0, 2].plot(LENGTHS, errors[name], marker, color=colour, markersize=5, label=name)
    axes[0, 2].set(
        xscale="log",
        yscale="log",
        xlabel="context length ψ",
        ylabel="largest error / Λ",
        title="error of the closed forms",
    )
    axes[0, 2].set_ylim(3e-7, 30)
    for ax in axes[0]:
        ax.legend(fontsize=8)
    return figure


def outputs(group: Group, step: int, seed: int = 0) -> np.ndarray:
    """f / Lambda of every task at one checkpoint."""
    tensors = group.runs[seed].checkpoint(step)
    v, h, w = (tensors[name].numpy() for name in ("v", "h", "w"))
    return np.einsum("si,sij,sj->s", v, h, w) / STRENGTH


def judgements(groups: dict[float, Group], errors: dict[str, np.ndarray]) -> list[Verdict]:
    """The claims of section 3 and Appendices E and J."""
    alignments = {
        psi: [align(run, group.flow(FullFlow, i)) for i, run in enumerate(group.runs)] for psi, group in groups.items()
    }
    fit = {psi: np.array([a.loss_r2 for a in found]) for psi, found in alignments.items()}
    ratios = {psi: np.concatenate([_reached(a, "half_time_ratio") for a in found]) for psi, found in alignments.items()}
    drift = np.array([a.conserved_drift for found in alignments.values() for a in found])
    slopes = []
    for group, found in zip(groups.values(), alignments.values(), strict=True):
        for run, alignment in zip(group.runs, found, strict=True):
            frequency = np.array((run.theory or {})["frequency"])
            half = alignment.modes["measured_half_time"].to_numpy()
            use = (half > 0) & (half < group.times[-1])
            if use.sum() > 2:
                slopes.append(np.polyfit(np.log(frequency[use]), np.log(half[use]), 1)[0])
    still = []
    for group in groups.values():
        for i, run in enumerate(group.runs):
            unseen = np.array((run.theory or {})["frequency"]) == 0
            still.append(np.abs(outputs(group, run.steps[-1], i) - outputs(group, 0, i))[unseen].max(initial=0.0))
    loss = {}
    for kind in (ZerothOrder, Corrected):
        for psi, group in groups.items():
            times = np.geomspace(0.1, group.times[-1], 40)
            predicted = np.stack([group.flow(kind, i).test_loss(times) for i in range(len(group.runs))])
            loss[kind, psi] = np.abs(group.at(times) / predicted - 1).max(1)
    first = errors["first order"]
    order = -np.polyfit(np.log(LENGTHS[3:8]), np.log(first[3:8]), 1)[0]

    def by_length(name: str) -> str:
        return ", ".join(f"ψ = {LENGTHS[i]:.0f}: {errors[name][i]:.1e}" for i in (0, 4, 7, 11))

    return [
        Verdict(
            "tasks learn independently, by Eq 9",
            "Eqs 8, 9",
            "gradient descent against the full flow, R² of the loss: "
            + "; ".join(f"ψ = {p:g}: {spread(v, 5)}" for p, v in fit.items())
            + "; half-times, measured / predicted: "
            + "; ".join(f"ψ = {p:g}: {percent(v)}" for p, v in ratios.items()),
            judge(1 - min(float(v.min()) for v in fit.values()), 0.005, 0.05),
            "Eq 9 is one number per task and solved by quadrature, without expanding in 1/ψ",
        ),
        Verdict(
            "Theorem 3.1 describes training precisely for ψ ≫ 1",
            "Theorem 3.1, Fig 2",
            "largest deviation of the test loss from t = 0.1 on: "
            + "; ".join(f"ψ = {p:g}: {loss[ZerothOrder, p].mean():.1%}" for p in CONTEXTS)
            + f"; largest error of f over Λ: {by_length('Theorem 3.1')}",
            HOLDS if errors["Theorem 3.1"][LENGTHS > 90].max() < 0.02 else "holds in part",
            "it does from ψ = 100 on; at ψ = 5 it is late by a fifth of Λ, as the paper's own figure shows",
        ),
        Verdict(
            "(ours) on the leading eigenvector of H the same closed form holds at every ψ",
            "Theorem 3.1, corrected",
            "largest deviation of the test loss: "
            + "; ".join(f"ψ = {p:g}: {loss[Corrected, p].mean():.1%}" for p in CONTEXTS)
            + f"; largest error of f over Λ: {by_length('corrected')}",
            judge(float(errors["corrected"].max()), 1e-3, 1e-2),
            "the second eigenvalue of H stays below Λ²/(Λ² + 1) while the first grows with ψ",
        ),
        Verdict(
            "the complete solution to first order is Eq 137 with Eqs 150, 151",
            "Appendix J",
            f"largest error over Λ: {by_length('first order, printed')}; without the term: {by_length('Theorem 3.1, aligned start')}",
            judge(float((errors["first order, printed"] / errors["Theorem 3.1, aligned start"])[3:8].mean()), 0.2, 0.8),
            "the constants of integration that make m(0) = n(0) = 0, and a factor 1/4, are missing",
        ),
        Verdict(
            "(ours) with these constants it is",
            "Appendix J, corrected",
            f"largest error over Λ: {by_length('first order')}; it falls as ψ^-{order:.2f} (ψ = {LENGTHS[3]:.0f} - {LENGTHS[7]:.0f})",
            judge(order - 2, 0.15, 0.5),
            "an error of second order is what a first-order solution should leave; applies to starts along (1, Λ) only",
        ),
        Verdict(
            "C is given by Eq 40",
            "Eq 40 against Eq 38",
            f"start w = {1 + FAR:g} v, largest error over Λ with C = g h: {by_length('Theorem 3.1 with Eq 40, far start')}; with "
            f"C = g h / 2: {by_length('Theorem 3.1, far start')}",
            judge(
                float((errors["Theorem 3.1 with Eq 40, far start"] / errors["Theorem 3.1, far start"])[-1]) - 1, 0.2, 1
            ),
            "g h = 2 C in Eq 38 is the right one (and the second half of Eq 40 lacks a square)",
        ),
        Verdict(
            "learning times go as one over the frequency of a task",
            "a_s in Theorem 3.1",
            f"slope of ln(half-time) against ln(#/N) over the tasks learned: {spread(slopes, 3)}",
            judge(float(np.mean(slopes)) + 1, 0.02, 0.1),
            "at equal strength and context length",
        ),
        Verdict(
            "tasks without data stay where they start",
            "Eq 62",
            f"largest change of f over Λ of a task never drawn: {max(still):.1e}",
            judge(max(still), 1e-12, 1e-3),
            "their row of V and column of W receive no gradient",
        ),
        Verdict(
            "(ours) |v|² - |w|² is conserved task by task",
            "full flow",
            f"largest change / all squared norms at the end: {spread(drift, 5)}",
            judge(float(drift.max()), 1e-3, 1e-2),
            "exactly by the flow at every ψ, where g h is conserved to leading order only; the rest is the step size",
        ),
    ]


def _reached(alignment, column: str) -> np.ndarray:
    """A column of the table of modes, for tasks that were learned while the run lasted."""
    table = alignment.modes
    end = alignment.trajectories["time"].max()
    reached = (table["measured_half_time"] > 0) & (table["measured_half_time"] < 0.9 * end)
    return table.loc[reached, column].to_numpy()


def _group(context: float, size: str, runs: Path) -> Group:
    tasks, steps = {"toy": (20, 400), "quick": (100, 4000), "paper": (100, 20_000)}[size]
    config = MultitaskConfig(tasks=tasks, context=context, strength=STRENGTH, init=INIT, data=3000, learning_rate=5e-3)
    return train_group(config, f"fig2-psi{context:g}", steps, size, runs, SEEDS[size])
