"""Fig 1 of paper 001: one head after the other learns one eigenvector, and the loss waits in between.

Trains six seeds at once (about 6 s on one core) and integrates the flow of each, also from smaller starts (12 s).
Expect: every clear plateau within 1.1 % of Eq 5; drops where the population flow says within 3 %; Eq 38 early by more
than a factor two, the exact escape of Eq 31 within 5 %.
"""

from pathlib import Path

import numpy as np

import probes
from analyses.paper_001_multi_head.plateau_measures import (
    CLEAR,
    cliffs_of,
    final_values,
    heads_of,
    plateau_ratio,
    plateaus,
    purity_of,
    purity_of_flows,
    rank_ratios,
    reduced_equation,
    shape_r2,
    start_of,
    values_after,
)
from analyses.paper_001_multi_head.runs import RUNS, Group, figure_1
from analyses.tools.draw import EXACT, PRINTED, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, Verdict, judge, percent, spread
from models.multi_head.reduced import escape_times, printed_escape_time

SHOWN = 0  # the seed whose heads are drawn
SHRINK = (1.0, 0.1, 0.01)  # starts of the flow, to see what holds for a vanishing one


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    group = figure_1(size, runs)
    return Page(
        "multi_head_plateaus",
        "Plateaus, values and eigenvectors of several heads (Fig 1)",
        "Trained by minibatches, the loss stops at the values of Eq 5 and one head after the other takes up one "
        "eigenvector, the largest first. The reduced equation has the right shape and end; its time, Eq 38, leaves out "
        "that a head must first align.",
        group.facts,
        draw(group),
        f"Left: expected loss of the weights, one curve per seed, and the plateaus of Eq 5 (dashes). Middle: value weights "
        f"of seed {SHOWN}, its population flow (thin black) and Eq 7 from the moment at which a head has a third of its "
        "final value (dashes). Right: the key of each head along each eigenvector during the plateaus of that seed.",
        judgements(group),
    )


def draw(group: Group):
    """Loss, values and keys."""
    figure, axes = panels(1, 3, height=4.4)
    ax = axes[0, 0]
    for seed in group.seeds:
        ax.plot(group.times[1:], group.loss[seed][1:], color="#1f6fb4", linewidth=0.8, alpha=0.8)
    for m, level in enumerate(group.levels):
        ax.axhline(level, **PRINTED, label="Eq 5" if m == 0 else None)
        ax.text(group.times[-1], level, f" {m}", va="center", fontsize=8)
    ax.plot([], [], color="#1f6fb4", label="trained, six seeds" if len(group.runs) == 6 else "trained")
    ax.set(xscale="log", xlim=(5, group.times[-1]), xlabel="time (learning rate x step)", ylabel="expected loss")
    ax.set_title("(A) loss; right: eigenvectors learned")
    ax.legend(fontsize=8, loc="upper right")
    _draw_values(axes[0, 1], group)
    _draw_keys(axes[0, 2], group)
    return figure


def _draw_values(ax, group: Group) -> None:
    heads = heads_of(group, SHOWN)
    theory = reduced_equation(group, heads, 1 / 3)
    fine = np.geomspace(5, group.times[-1], 600)
    flow = np.abs(group.flows[SHOWN].weights(fine)[0])
    for d, colour in enumerate(mode_colours(len(heads.owner))):
        head = heads.owner[d]
        ax.plot(
            heads.times[1:], heads.values[1:, head], color=colour, linewidth=2.4, alpha=0.85, label=f"learns e{d + 1}"
        )
        ax.plot(fine, flow[:, head], **EXACT, label="population flow" if d == 0 else None)
        after = fine > theory.since[d]
        ax.plot(fine[after], theory.values(fine[after])[:, d], **PRINTED, label="Eq 7" if d == 0 else None)
    ax.set(xscale="log", xlim=(5, group.times[-1]), xlabel="time (learning rate x step)", ylabel="|v| of each head")
    ax.set_title(f"(B) value weights, seed {SHOWN}")
    ax.legend(fontsize=7, loc="upper left")


def _draw_keys(ax, group: Group) -> None:
    heads = heads_of(group, SHOWN)
    drops = np.concatenate(([0.0], np.sort(group.half_times[SHOWN])))
    drops = drops[np.isfinite(drops)]
    middles = [*(drops[:-1] + 0.6 * np.diff(drops)), heads.times[-1]]
    d, count = heads.keys.shape[-1], heads.keys.shape[1]
    shown = [np.abs(heads.keys[np.searchsorted(heads.times, at).clip(max=len(heads.times) - 1)]) for at in middles]
    gap = np.full((count, 1), np.nan)
    image = np.concatenate([part for one in shown for part in (one, gap)][:-1], axis=1)
    picture = ax.imshow(image, cmap="Blues", vmin=0, aspect="auto")
    ax.set_xticks([k * (d + 1) + (d - 1) / 2 for k in range(len(shown))], [f"plateau {k}" for k in range(len(shown))])
    ax.set(yticks=range(count), yticklabels=[f"head {i}" for i in range(count)])
    ax.set_title(f"(C) |key| along e1 ... e{d}, seed {SHOWN}")
    ax.get_figure().colorbar(picture, ax=ax, shrink=0.8)


def judgements(group: Group) -> list[Verdict]:
    """The claims of section 3 and Appendix D."""
    found, modes = plateaus(group), len(group.config.eigenvalues)
    by_m = {m: np.array([ratio for k, ratio in found if k == m]) for m in range(modes + 1)}
    worst = max(abs(ratio - 1) for _, ratio in found)
    half, expected = group.half_times, np.stack([flow.half_times for flow in group.flows])
    in_order = [bool((np.diff(row) > 0).all()) for row in half]
    heads = [heads_of(group, seed) for seed in group.seeds]
    ends = final_values(group)
    fresh = np.stack([values_after(h, row) / ends for h, row in zip(heads, half, strict=True)])
    final = np.stack([h.values[-3:][:, h.owner].mean(0) / ends for h in heads])
    purity = {shrink: purity_of_flows(group, shrink) for shrink in SHRINK}
    trained = np.stack([purity_of(h.keys[-1], h.owner) for h in heads])
    ranks = rank_ratios(group)
    shape = {shrink: shape_r2(group, shrink) for shrink in (1.0, SHRINK[-1])}
    first = np.array([escape_times(group.config.eigenvalues, *start_of(group, seed)).min() for seed in group.seeds])
    printed = np.array(
        [
            printed_escape_time(group.config.eigenvalues[0], np.abs(start_of(group, seed)[0]).max())
            for seed in group.seeds
        ]
    )
    later = np.concatenate([plateau_ratio(group, seed) for seed in group.seeds])
    cliffs = [cliffs_of(group, seed) for seed in group.seeds]
    drift = np.array([a.conserved_drift for a in group.alignments])
    exact = max(
        float(np.abs(np.ptp(flow.conserved([0.0, *half[0][np.isfinite(half[0])]]), axis=0)).max())
        for flow in group.flows[:2]
    )
    relative = half.std(0) / half.mean(0) if np.isfinite(half).all() else np.full(modes, np.nan)
    return [
        Verdict(
            "the loss at each plateau is L(M_m) of Eq 5",
            "Eq 5, Fig 1a",
            f"{len(found)} clear plateaus, measured / Eq 5: "
            + "; ".join(f"m = {m}: {percent(v)} ({len(v)})" for m, v in by_m.items() if len(v))
            + f". Largest deviation {100 * worst:.1f} %",
            judge(worst, 0.02, 0.05),
            f"clear: the next drop at least {CLEAR:g} times as late; the noise of SGD adds up to 1 %",
        ),
        Verdict(
            "the loss goes through D abrupt drops",
            "section 3.2, Fig 1a",
            f"find_transitions on the noisy minibatch loss: {', '.join(str(n) for n, _ in cliffs)} cliffs of {modes} in the seeds; "
            f"{sum(n for _, n in cliffs)} of {sum(n for n, _ in cliffs)} within 20 % of a half-learned mode",
            _all_or_part([n == modes for n, _ in cliffs]),
            "all modes are half learned in every seed; where two follow each other within a factor two there is one "
            "visible cliff, so fewer than D are found",
        ),
        Verdict(
            "eigenvectors are learned one after another, the largest eigenvalue first",
            "section 3.2",
            f"in order in {sum(in_order)} of {len(in_order)} seeds",
            _all_or_part(in_order),
            "rates go as the square of the eigenvalue",
        ),
        Verdict(
            "in each drop the key of one head aligns with the new eigenvector",
            "Eq 6, Fig 1c",
            "share of |k|² along its eigenvector at the end, worst head of each seed: trained "
            f"{spread(trained.min(1), 2)}; flow {spread(purity[1.0].min(1), 2)}; flow from a start "
            + ", ".join(f"{1 / k:.0f} times smaller {spread(v.min(1), 2)}" for k, v in purity.items() if k < 1),
            judge(1 - float(purity[min(SHRINK)].mean()), 0.02, 0.1),
            "exact for a vanishing start; at this one a head whose drop is soon followed by the next keeps a part of both",
        ),
        Verdict(
            "(ours) the effective rank of what the heads do together counts the eigenvectors learned",
            "Eq 4, Roy & Vetterli's rank",
            "measured / effective rank of Eq 4 at the clear plateaus: "
            + "; ".join(f"m = {m}: {percent([r for k, r in ranks if k == m])}" for m in sorted({k for k, _ in ranks})),
            judge(max((abs(ratio - 1) for _, ratio in ranks), default=np.inf), 0.1, 0.3),
            "seen in the weights alone, without the theory's basis; Eq 4 itself has rank "
            + ", ".join(
                f"{probes.effective_rank(np.diag(group.flows[0].fixed_point[:m])):.2f}" for m in range(1, modes + 1)
            ),
        ),
        Verdict(
            "v of a head grows to (lambda / a)^(1/3)",
            "Eq 6a",
            "measured / Eq 6a by mode, soon after the drop: "
            + "; ".join(percent(column) for column in fresh.T)
            + ". At the end of training: "
            + "; ".join(percent(column) for column in final.T),
            judge(float(np.abs(fresh - 1).mean()), 0.03, 0.1),
            "then the noise of SGD slowly moves weight from v to keys and queries, with the same product: the balance of "
            "Eq 44 is not kept by SGD",
        ),
        Verdict(
            "Eq 7 describes v(t) during plateau and drop",
            "Eq 7, Fig 1b",
            "against the flow, from a third of the final value on: R² above .95 for "
            + "; ".join(
                f"{(r2 > 0.95).sum()} of {r2.size} modes (start {f'{1 / k:.0f} times smaller' if k < 1 else 'as trained'})"
                for k, r2 in shape.items()
            )
            + ". From the drop before on (as Eq 43 has it), at clear plateaus: predicted / measured time of the drop "
            f"{spread(later, 2)}",
            judge(1 - float((shape[SHRINK[-1]] > 0.95).mean()), 0.02, 0.3) if abs(later.mean() - 1) < 0.15 else IN_PART,
            "right once a head is aligned and alone, which a smaller start brings about; before the alignment v grows more "
            "slowly than Eq 7 says, so that the time of a drop is not to be had from the drop before",
        ),
        Verdict(
            "the first plateau lasts t_1 = 1 / (lambda_1² v(0))",
            "Eq 38",
            f"measured / printed, with the largest |v(0)|: {spread(half[:, 0] / printed, 2)}",
            judge(float((half[:, 0] / printed).mean()) - 1, 0.2, 0.5),
            "early by about a factor two: keys and queries start at random angles and have to align first",
        ),
        Verdict(
            "(ours) the first plateau ends when Eq 31 of the fastest head reaches infinity",
            "Eqs 31-33, kept whole",
            f"measured / exact escape: {spread(half[:, 0] / first, 2)}",
            judge(float((half[:, 0] / first).mean()) - 1, 0.15, 0.3),
            "exact for a vanishing start; at this size of start the drop comes a little before the pole",
        ),
        Verdict(
            "(ours) the population flow of Eq 24 from each run's start gives the time of every drop",
            "Eq 24",
            "half-time, measured / flow, by mode: " + "; ".join(percent(column) for column in (half / expected).T),
            judge(float(np.abs(half / expected - 1).max()), 0.1, 0.25),
            "no free parameter; the spread is the noise of minibatches",
        ),
        Verdict(
            "the timing of later drops varies more between seeds",
            "below Eq 43",
            "standard deviation / mean of the half-time by mode: " + ", ".join(f"{r:.2f}" for r in relative),
            HOLDS if (np.diff(relative) > 0).all() else IN_PART if relative[-1] > relative[0] else FAILS,
            "over these seeds",
        ),
        Verdict(
            "|k|² - v² and |k|² - |q|² of each head are conserved",
            "Eq 44",
            f"population flow: changes by {exact:.0e}. SGD: largest change / all squared weights {spread(drift)}",
            judge(exact, 1e-6, 1e-3),
            "a law of the flow; SGD breaks it at order learning rate / batch",
        ),
    ]


def _all_or_part(each: list[bool]) -> str:
    return HOLDS if all(each) else IN_PART if any(each) else FAILS
