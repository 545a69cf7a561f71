"""Figs 2, 7, 8 and 9 of paper 001: what the rank of keys and queries does to the plateaus.

Trains eight eigenvectors with nine heads of rank 1, 2, 4, 8 (six seeds each, about 45 s on one core), four eigenvectors
with five heads of rank 1, 2, 4 (18 s) and repeated eigenvalues (6 s). Expect: plateaus where m is divisible by R, D / R
heads that grow, all ranks at the same end.
"""

from pathlib import Path

import numpy as np

from analyses.paper_001_multi_head.runs import RUNS, Group, figure_1, of_rank, repeated, value_weights
from analyses.tools.draw import PRINTED, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, Verdict, judge, percent, spread

RANKS = (1, 2, 4, 8)
VALUE_RANKS = (1, 2, 4)
NEAR = 0.15  # the loss is at a level if it is within this share of the smaller gap to the levels beside it
GROWN = 0.5  # a head has grown if its |v| is above this share of the largest


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    groups = {rank: of_rank(rank, size, runs) for rank in RANKS}
    values = {rank: value_weights(rank, size, runs) for rank in VALUE_RANKS}
    twice, square = repeated(size, runs), figure_1(size, runs)
    return Page(
        "multi_head_ranks",
        "Plateaus and the rank of keys and queries (Figs 2, 7, 9)",
        "A head of rank R learns R eigenvectors: the loss rests where a new head has to grow, at m = 0, R, 2R, ..., and "
        "hardly in between. (The text has it the other way round: 'for m that divides R'.) The end is the same for every "
        "rank.",
        groups[1].facts.replace("R = 1", "R = 1, 2, 4, 8") + f". Values: {values[1].facts.split(';')[0]}, H = 5. "
        f"Repeated: {twice.facts.split(';')[0]}",
        draw(groups, values, twice),
        "Top: expected loss, one curve per seed, with the levels of Eq 5; dark dashes where m is divisible by R. Below left: "
        "value weights of seed 0 for four eigenvectors and heads of rank 1, 2, 4 (Fig 7): as many grow as are needed. Below "
        "right: repeated eigenvalues, rank one (Fig 9).",
        judgements(groups, values, twice, square),
    )


def dwell(group: Group) -> np.ndarray:
    """How long the loss is at each level, in units of ln(time): [seeds, D + 1]."""
    levels = group.levels
    gaps = -np.diff(levels)
    width = NEAR * np.minimum(np.concatenate(([np.inf], gaps)), np.concatenate((gaps, [np.inf])))
    near = np.abs(group.loss[:, 1:, None] - levels) < width
    return (near / group.times[1:, None]).sum(1) * group.config.learning_rate


def grown(group: Group) -> np.ndarray:
    """How many heads have grown at the end, in each seed."""
    last = [np.abs(group.weights(seed)[1]["value"][-1]) for seed in group.seeds]
    return np.array([int((v > GROWN * v.max()).sum()) for v in last])


def shared_modes(group: Group) -> list[bool]:
    """Whether in a seed some eigenvector is written by two heads, each with more than a fifth of it."""
    found = []
    for seed in group.seeds:
        weights = group.weights(seed)[1]
        written = np.einsum("h,hrd,hrd->hd", *(weights[name][-1] for name in ("value", "key", "query")))
        share = written / written.sum(0)
        found.append(bool(((share > 0.2).sum(0) > 1).any()))
    return found


def draw(groups: dict[int, Group], values: dict[int, Group], twice: Group):
    """Losses by rank; values by rank, and repeated eigenvalues."""
    figure, axes = panels(2, 4, height=3.5)
    for ax, (rank, group) in zip(axes[0], groups.items(), strict=True):
        _draw_loss(ax, group)
        ax.set_title(f"R = {rank}, D = {len(group.config.eigenvalues)}, H = {group.config.heads}")
    for ax, (rank, group) in zip(axes[1], values.items(), strict=False):
        times, weights = group.weights(0)
        for head, colour in enumerate(mode_colours(group.config.heads)):
            ax.plot(times[1:], np.abs(weights["value"][1:, head]), color=colour, linewidth=1.8)
        ax.set(xscale="log", xlim=(5, times[-1]), xlabel="time (learning rate x step)", ylabel="|v| of each head")
        ax.set_title(f"value weights, R = {rank}, D = 4, H = 5")
    _draw_loss(axes[1, 3], twice)
    axes[1, 3].set_title("repeated eigenvalues, R = 1")
    return figure


def _draw_loss(ax, group: Group) -> None:
    for loss in group.loss:
        ax.plot(group.times[1:], loss[1:], color="#1f6fb4", linewidth=0.8, alpha=0.8)
    for m, level in enumerate(group.levels):
        divisible = m % group.config.rank == 0
        ax.axhline(level, **(PRINTED | ({"color": "black"} if divisible else {"color": "#bbb", "linewidth": 1.0})))
    ax.set(xscale="log", xlim=(5, group.times[-1]), xlabel="time (learning rate x step)", ylabel="expected loss")


def judgements(groups: dict[int, Group], values: dict[int, Group], twice: Group, square: Group) -> list[Verdict]:
    """The claims of section 4 and Appendix E."""
    modes = len(groups[1].config.eigenvalues)
    stays = {rank: dwell(group) for rank, group in groups.items()}
    contrast, divides = {}, {}
    for rank in (2, 4):
        inner, stay = np.arange(1, modes), stays[rank][:, 1:-1]
        new_head = inner % rank == 0
        contrast[rank] = stay[:, new_head].mean(1) / stay[:, ~new_head].mean(1)
        only_printed = (rank % inner == 0) & ~new_head
        divides[rank] = stay[:, only_printed].mean(1) / stay[:, new_head].mean(1)
    ends = {rank: group.loss[:, -200:].mean(1) / group.levels[-1] for rank, group in groups.items() if rank > 1}
    counts = {rank: grown(group) for rank, group in values.items()}
    needed = {rank: -(-4 // rank) for rank in values}
    as_needed = np.concatenate([counts[rank] == needed[rank] for rank in values])
    drift = {
        rank: np.ptp(g.flows[0].conserved([0.0, 100.0, 1000.0]), axis=0).max()
        for rank, g in groups.items()
        if rank in (2, 4)
    }
    shared = {
        f"D = {modes}, H = {groups[1].config.heads}": shared_modes(groups[1]),
        "D = 4, H = 5": shared_modes(values[1]),
    }
    alone = shared_modes(square)
    pairs = [(m, dwell(twice)[:, m]) for m in (1, 3)]
    between = np.stack([stay for _, stay in pairs])
    return [
        Verdict(
            "conspicuous plateaus at L(M_m) where a new head has to grow, m divisible by R",
            "section 4, Fig 2",
            "mean stay at those levels / at the others, in ln(time): "
            + "; ".join(f"R = {rank}: {spread(v, 1)}" for rank, v in contrast.items()),
            _over(contrast, 2.0),
            f"a stay is the ln(time) within {100 * NEAR:.0f} % of the gap to the next level; the first and the last level are left out",
        ),
        Verdict(
            "'for m that divides R'",
            "section 4 and Fig 7, as printed",
            "mean stay at m that divides R without being divisible by it (R = 2: m = 1; R = 4: m = 1, 2) / at m divisible by "
            "R: " + "; ".join(f"R = {rank}: {spread(v, 1)}" for rank, v in divides.items()),
            _over(divides, 1.0),
            "the words are reversed: it is R that divides m, as the paper's own examples (R = 2: m = 0, 2, 4, 6) show",
        ),
        Verdict(
            "R = 1 rests at every L(M_m), R = D only at the start",
            "Fig 2",
            f"mean stay at m = 1 .. {modes - 1}: R = 1: {spread(stays[1][:, 1:-1].mean(1), 2)}; "
            f"R = {modes}: {spread(stays[RANKS[-1]][:, 1:-1].mean(1), 2)} in ln(time)",
            HOLDS if stays[1][:, 1:-1].mean() > 2 * stays[RANKS[-1]][:, 1:-1].mean() else IN_PART,
            "with one value for all eigenvectors the later ones follow at once",
        ),
        Verdict(
            "a new value weight grows only when m is divisible by R",
            "Appendix E.4, Fig 7",
            "heads grown at the end (needed): "
            + "; ".join(f"R = {rank}: {', '.join(map(str, counts[rank]))} ({needed[rank]})" for rank in values),
            judge(1 - float(as_needed.mean()), 0.1, 0.6),
            "in some seeds a head more than needed takes a share of the work",
        ),
        Verdict(
            "all ranks have the same fixed points in function space and end at L(M_D)",
            "Appendix E.3, Eq 48",
            "final loss / L(M_D): " + "; ".join(f"R = {rank}: {percent(v)}" for rank, v in ends.items()),
            judge(max(abs(float(v.mean()) - 1) for v in ends.values()), 0.03, 0.1),
            "above it by the noise of SGD",
        ),
        Verdict(
            "the sum over r of |k_r|² - v² is conserved in each head",
            "Eq 50",
            "population flow, largest change: " + "; ".join(f"R = {rank}: {v:.0e}" for rank, v in drift.items()),
            judge(float(max(drift.values())), 1e-6, 1e-3),
            "a law of the flow; SGD breaks it at order learning rate / batch",
        ),
        Verdict(
            "a head takes up one eigenvector while the other heads stay where they are",
            "Eq 6, with more heads than eigenvectors",
            "seeds in which two heads share an eigenvector: "
            + "; ".join(f"{name}: {sum(v)} of {len(v)}" for name, v in shared.items())
            + f"; control with as many heads as eigenvectors (Fig 1): {sum(alone)} of {len(alone)}",
            HOLDS if not any(any(v) for v in shared.values()) else IN_PART,
            "two heads can leave a plateau together and then share its eigenvector, more often if there are more heads than "
            "eigenvectors; Eq 7 is off for both",
        ),
        Verdict(
            "with repeated eigenvalues R = 1 can still rest between two equal ones, or skip the plateau, by the seed",
            "Appendix E.5, Fig 9",
            "stay between equal eigenvalues by seed, in ln(time): "
            + "; ".join(f"m = {m}: {', '.join(f'{x:.2f}' for x in stay)}" for m, stay in pairs),
            HOLDS if (between > 0.3).any() and (between < 0.3).any() else IN_PART if (between > 0.3).any() else FAILS,
            "heads start at random sizes, so their escapes differ even at equal rates",
        ),
    ]


def _over(ratios: dict[int, np.ndarray], least: float) -> str:
    means = [float(v.mean()) for v in ratios.values()]
    return HOLDS if min(means) >= least else IN_PART if min(means) > 1 else FAILS
