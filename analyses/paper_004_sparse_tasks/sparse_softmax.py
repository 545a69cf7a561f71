"""Figs 8, 9 and 10 of paper 004: softmax attention on sparse tasks, trained by gradient descent and by AdamW.

Trains 500 tasks at two frequency exponents, with varied contexts, at five sizes and on four numbers of prompts, by both
optimizers, six seeds each and as many fresh ones (two minutes on one core at size quick). Expect: exponents of gradient
descent near Table 1, those of AdamW far steeper in time and compute; contexts of varied length leave softmax alone.
"""

from pathlib import Path

import numpy as np

from analyses.paper_004_sparse_tasks.runs import RUNS, Group, train_group
from analyses.paper_004_sparse_tasks.softmax_measures import (
    ALPHA,
    BETAS,
    DRAWS,
    FITTED,
    OTHER,
    SIZES,
    Seen,
    Trained,
    adamw_beside_gd,
    adamw_compute,
    adamw_ends,
    contexts_beside_none,
    frontier,
    of_compute,
    of_contexts,
    of_draws,
    of_sizes,
    of_times,
)
from analyses.tools.claims import Claim, judged, judged_again
from analyses.tools.draw import PRINTED, band, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.rules import AboveControls, Close, Small, Together
from analyses.tools.source import Source
from models.multitask_sparse import laws
from models.multitask_sparse.model import MultitaskAttention, MultitaskConfig
from models.multitask_sparse.softmax import SoftmaxAttention, SoftmaxConfig
from models.multitask_sparse.task import PowerLaw


def run(size: str = "quick", runs: Path = RUNS, *, fresh: bool = False) -> Page:
    """Train or load, draw, judge."""
    source = Source(size, runs, has_fresh=fresh)
    seen = gather(source)
    c = seen.gd.by_alpha[ALPHA].config
    return Page(
        "sparse_softmax",
        "Many sparse tasks: softmax attention (Figs 8, 9, 10)",
        "Softmax attention with keys and queries of their own has no closed form here, but its tasks are still learned one by "
        "one, each at a pace proportional to its frequency: trained by gradient descent it keeps the laws of Table 1. It "
        "averages over its context where linear attention sums, so contexts of varied length do not slow it down, against "
        "Fig 9. AdamW takes the pace from the frequencies, and with it the laws of time and compute.",
        f"{c.tasks} tasks, ψ = {c.context:g}, Λ = {c.strength}, V starts at {c.init}, W_K and W_Q normal with standard deviation {c.spread}, inner "
        f"dimension {c.inner}; gradient descent on all data, learning rate {c.learning_rate:g}; AdamW as in Table 4; {len(seen.gd.by_alpha[ALPHA].runs)} "
        "seeds; the paper does not print its learning rate, inner dimension and start of keys and queries",
        draw(seen),
        "Top, gradient descent: loss against time, size, data and compute, mean and standard deviation over seeds (dots are "
        "seeds), with the slopes of Table 1 (dashed); then time with contexts that shorten as s^-β, softmax (solid) beside linear "
        "attention (dotted), with the slopes printed for each β. Bottom: the same by AdamW, with the slopes of Table 1; and all "
        "fitted exponents over the printed ones, a dot per seed.",
        judged_again(CLAIMS, seen, gather(source.fresh)) if source.fresh else judged(CLAIMS, seen),
    )


def gather(source: Source) -> Seen:
    """Train or load; linear attention is trained once, as there is no chance in it."""
    tasks, steps, few = {"toy": (60, 30, 40), "quick": (500, 1500, 600), "paper": (500, 6000, 2000)}[source.size]

    def softmax(optimizer: str, **setting: float) -> Group:
        rate = 2.0 if optimizer == "gd" else 5e-3
        config = SoftmaxConfig(tasks=tasks, optimizer=optimizer, learning_rate=rate, **setting)  # pyright: ignore[reportArgumentType]
        name = f"softmax-{optimizer}-" + "-".join(f"{key}{value:g}" for key, value in setting.items())
        length = steps if optimizer == "gd" else few
        return train_group(SoftmaxAttention, config, name, length, source, checkpoints=6)

    def trained(optimizer: str, alpha: float) -> Trained:
        return Trained(
            optimizer,
            {a: softmax(optimizer, alpha=a) for a in (ALPHA, OTHER)},
            {d: softmax(optimizer, alpha=alpha, size=d) for d in SIZES},
            {n: softmax(optimizer, alpha=alpha, data=n) for n in DRAWS},
        )

    def linear(beta: float) -> Group:
        config = MultitaskConfig(tasks=tasks, beta=beta, learning_rate=0.01)
        once = Source(source.size, source.runs)
        return train_group(MultitaskAttention, config, f"linear-beta{beta:g}", 2 * steps, once, seeds=1, checkpoints=6)

    return Seen(
        trained("gd", ALPHA),
        trained("adamw", OTHER),
        {b: softmax("gd", alpha=ALPHA, beta=b) for b in BETAS},
        {b: linear(b) for b in (0.0, *BETAS)},
    )


def draw(seen: Seen):
    """Figs 8 and 9, Fig 10, and all exponents at a glance."""
    figure, axes = panels(2, 5, height=3.8)
    for row, trained in zip(axes, (seen.gd, seen.adamw), strict=True):
        name = "" if trained.optimizer == "gd" else "AdamW: "
        for (alpha, group), colour in zip(trained.by_alpha.items(), mode_colours(2), strict=True):
            x, losses = _sampled(group, group.config.learning_rate if name else 1.0)
            band(row[0], x, losses, colour, f"α = {alpha:g}")
            _late_slope(row[0], x, losses, laws.time_exponent(PowerLaw(alpha)))
        row[0].set(xlabel="step" if name else "time t", title=f"{name}time")
        alpha = f"α = {trained.law.frequency:g}"
        _ends(row[1], {d: trained.by_size[d] for d in FITTED}, laws.size_exponent(trained.law), alpha)
        row[1].set(xlabel="size D", title=f"{name}size")
        _ends(row[2], trained.by_data, laws.data_exponent(trained.law), alpha)
        row[2].set(xlabel="data N", title=f"{name}data")
        budgets, losses = frontier(trained)
        band(row[3], budgets, losses, mode_colours(2)[0], f"best size, {alpha}")
        _slope(row[3], budgets, losses.mean(0), laws.compute_exponent(trained.law))
        row[3].set(xlabel="compute (step x D)" if name else "compute t D", title=f"{name}compute")
    _contexts(axes[0, 4], seen)
    for ax in [*axes[0], *axes[1, :4]]:
        ax.set(xscale="log", yscale="log", ylabel="test loss")
        ax.plot([], [], **PRINTED, label="printed slope")
        ax.legend(fontsize=7)
    _at_a_glance(axes[1, 4], seen)
    return figure


def _contexts(ax, seen: Seen) -> None:
    """Softmax beside linear attention with contexts that shorten."""
    groups = {0.0: seen.gd.by_alpha[ALPHA], **seen.varied}
    for (beta, group), colour in zip(groups.items(), mode_colours(len(groups)), strict=True):
        x, losses = _sampled(group)
        band(ax, x, losses, colour, f"softmax, β = {beta:g}")
        _late_slope(ax, x, losses, laws.time_exponent(PowerLaw(ALPHA, beta)), colour)
        line = seen.linear[beta]
        later = line.times > 0
        ax.plot(
            line.config.context * line.times[later], line.test_losses[0, later], ":", color=colour, linewidth=1.8,
            label=f"linear, β = {beta:g}",
        )  # fmt: skip
    ax.set(xlabel="time t (linear: ψ t)", title="varied contexts", xlim=(3, None))


def _at_a_glance(ax, seen: Seen) -> None:
    """Every fitted exponent over the printed one, a dot per seed."""
    rows = {
        "size": of_sizes("gd"),
        "time": of_times,
        "data": of_draws("gd"),
        "compute": of_compute,
        "time, varied contexts": of_contexts,
        "AdamW: size": of_sizes("adamw"),
        "AdamW: data": of_draws("adamw"),
        "AdamW: time": adamw_beside_gd,
        "AdamW: compute": adamw_compute,
    }
    for height, measure in enumerate(rows.values()):
        found = measure(seen).runs
        ax.plot(found, np.full(len(found), -height), "o", color=mode_colours(2)[0], markersize=4, alpha=0.5)
    ax.axvline(1, **PRINTED)
    ax.set_yticks(-np.arange(len(rows)), list(rows), fontsize=8)
    ax.set(xscale="log", xlabel="fitted exponent / printed", title="all exponents")


def _sampled(group: Group, unit: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Times in this unit, evenly in their logarithm, and the losses of all seeds there."""
    times = np.geomspace(max(group.times[1], unit), group.times[-1], 60)
    return times / unit, group.at(times)


def _late_slope(ax, x: np.ndarray, losses: np.ndarray, exponent: float, colour=PRINTED["color"]) -> None:
    """The printed slope below the end of a curve."""
    late = x >= x[-1] / 30
    _slope(ax, x[late], losses.mean(0)[late], exponent, colour)


def _slope(ax, x: np.ndarray, y: np.ndarray, exponent: float, colour=PRINTED["color"]) -> None:
    ax.plot(x, 0.75 * y[0] * (x / x[0]) ** -exponent, **{**PRINTED, "color": colour})


def _ends(ax, groups: dict[int, Group], exponent: float, label: str) -> None:
    """Losses at the end, one dot per seed."""
    amounts = np.array(list(groups))
    ends = np.stack([group.test_losses[:, -1] for group in groups.values()])
    ax.plot(amounts, ends, "o", color=mode_colours(2)[0], markersize=4, alpha=0.6)
    ax.plot(amounts, ends.mean(1), color=mode_colours(2)[0], label=label)
    _slope(ax, amounts, ends.mean(1), exponent)


_SIMILAR = Close(0.15, 0.3)
_BENT = "500 tasks are too few for a straight line: the sum over them, without any training, is told"

CLAIMS: list[Claim[Seen]] = [
    Claim("softmax has a similar law of size: D^(-(α - 1))", "I.1, Fig 8a", of_sizes("gd"), _SIMILAR, _BENT),
    Claim(
        "of time: t^(-(α - 1)/α)",
        "I.1, Fig 8b",
        of_times,
        Together([_SIMILAR] * 2, [f"α = {ALPHA:g}", f"α = {OTHER:g}"]),
        "each task has a pace proportional to its frequency, as in linear attention; starts of keys and queries scatter",
        set_before=False,
    ),
    Claim("of data: N^(-(α - 1)/α)", "I.1, Fig 8c", of_draws("gd"), _SIMILAR, _BENT),
    Claim(
        "of compute: C^(-(α - 1)/(α + 1))",
        "I.1, Fig 8d",
        of_compute,
        _SIMILAR,
        "the least loss of five sizes at every t D",
    ),
    Claim(
        "with varied contexts its time law is that of linear attention: t^(-(α - 1)/(α + β))",
        "I.1, Fig 9",
        of_contexts,
        Together([_SIMILAR] * len(BETAS), [f"β = {b:g}" for b in BETAS]),
        "softmax averages over its context, so that ψ enters by the query's own share, 1/ψ, and by how evenly signs are drawn",
        set_before=False,
    ),
    Claim(
        "(ours) contexts of varied length leave the time law of softmax as it is",
        "I.1, against Fig 9",
        contexts_beside_none,
        Together([Close(0.05, 0.15)] * len(BETAS), [f"β = {b:g}" for b in BETAS]),
        "from the same starts, seed by seed; linear attention on the same tasks is the control",
        set_before=False,
    ),
    Claim(
        "AdamW learns every task given time",
        "I.2, Fig 10c",
        adamw_ends,
        Small(0.001, 0.01),
        "the rarest of 500 tasks, too",
    ),
    Claim("AdamW has a similar law of size", "I.2, Fig 10a", of_sizes("adamw"), _SIMILAR, _BENT),
    Claim("AdamW has a similar law of data", "I.2, Fig 10b", of_draws("adamw"), _SIMILAR, _BENT),
    Claim(
        "AdamW leads to a very different law of time",
        "I.2, Fig 10c",
        adamw_beside_gd,
        AboveControls(),
        "runs are AdamW, controls gradient descent; AdamW divides the frequency of a task out of its gradient",
        set_before=False,
    ),
    Claim(
        "and of compute",
        "I.2, Fig 10d",
        adamw_compute,
        AboveControls(),
        "runs are AdamW, controls gradient descent, each over the exponent of Table 1 for its α",
    ),
]
