"""Figs 5 and 6 of paper 000: what the probes see when attention-only transformers begin to learn in context.

One to four layers on the repeated-subsequence task, three seeds each; the 1-layer model, which cannot solve it, is the
control in the same axes. Quick: 12 runs, 12 minutes of processor time to train and one to measure, so seven or eight
minutes on two cores. Expect: accuracy on repeated tokens .91 - .94 at 2 - 4 layers against .09; the QK rank without its
four largest components dips by 7 - 20 % at emergence against at most 6 % in the control; induction heads form with it.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import rankdata
from tqdm import tqdm

import probes
from analyses.paper_000_exact_dynamics.icl_emergence_figure import draw
from analyses.paper_000_exact_dynamics.icl_emergence_study import (
    CONTROL,
    HORIZONS,
    Emergence,
    Number,
    emergence,
    final_accuracy,
    layers,
)
from analyses.paper_000_exact_dynamics.mode_reach import reach_verdicts, yardstick
from analyses.paper_000_exact_dynamics.transformer_runs import RUNS, attention_only_runs
from analyses.tools.page import Page
from analyses.tools.study import Curve, cliff, dip, each, halfway_down, metric, nearest_peak
from analyses.tools.verdicts import (
    FAILS,
    HOLDS,
    IN_PART,
    Verdict,
    average,
    beyond,
    seen,
    seen_only_here,
    spread,
    together,
)

EARLIER, LATER = 0.7, 1.4  # of the step of emergence: where drift is compared with that at emergence
SPACING = {"toy": 20, "quick": 50, "paper": 50}  # of the drift, in steps


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    trained = attention_only_runs(size, runs)
    last = trained[2][0].steps[-1]
    when = [emergence(run) for run in trained[2]]
    usual = _or(average(when), last / 2)
    studies = {
        depth: [Emergence(run, _or(emergence(run), usual), SPACING[size], HORIZONS) for run in group]
        for depth, group in trained.items()
    }
    for study in tqdm([s for group in studies.values() for s in group], desc="measuring", unit="run", disable=None):
        _ = study.table, study.alignment
    modes = {"linear head": [yardstick()]} | {layers(d): [s.alignment.modes for s in g] for d, g in studies.items()}
    config = trained[2][0].config
    task, optimizer = config["task"], config["optimizer"]
    return Page(
        "icl_emergence",
        "In-context learning emerges in attention-only transformers (Figs 5, 6)",
        SUMMARY,
        f"{task['length']} tokens of {task['vocabulary']}, {task['copies']} copies of {task['subsequence']}; {config['n_heads']} heads of "
        f"{config['d_head']}, d_model {config['d_model']}; AdamW, learning rate {optimizer['learning_rate']:g}, weight decay "
        f"{optimizer['weight_decay']:g}, batch {config['batch']}; {last} steps; {len(studies[2])} seeds per depth",
        draw(studies, modes),
        CAPTION,
        judgements(studies) + reach_verdicts(modes, [layers(depth) for depth in studies if depth != CONTROL]),
    )


SUMMARY = (
    "In-context learning emerges suddenly at 2, 3 and 4 layers and never at 1, and a cliff of the plain loss marks it. Of the dips of "
    "effective rank only the marginalized one of QK sets the models that learn apart from the one that cannot: the plain rank dips there "
    "as well. When subspaces 'settle' depends on where training is stopped, in the control too; their drift, which needs no end, stays up "
    "until emergence and then falls. Modes look logistic more often than not, but the large ones do not come first."
)
CAPTION = (
    "Time is relative to the step at which each run reaches half of its final accuracy on repeated tokens (1 layer, which never "
    "learns: the mean of it over the 2-layer runs). Shaded: from a tenth to nine tenths of the final accuracy. Bands: mean and "
    "standard deviation over seeds. The 1-layer model is the control: whatever it shares with the others is no sign of emergence."
)


def _or(value: float, default: float) -> float:
    return value if np.isfinite(value) else default


def judgements(studies: dict[int, list[Emergence]]) -> list[Verdict]:
    """The claims of section 4 on attention-only models, each with the 1-layer number beside it."""
    control = studies[CONTROL]
    deep = {depth: group for depth, group in studies.items() if depth != CONTROL}
    learned = [s for group in deep.values() for s in group]

    def by_depth(compute: Number, digits: int = 2, scale: float = 1.0) -> str:
        return "; ".join(f"{layers(d)} {spread(scale * each(compute, group), digits)}" for d, group in studies.items())

    def seen_by_depth(compute: Number) -> str:
        return "; ".join(f"{layers(depth)} {seen(each(compute, group))}" for depth, group in studies.items())

    def dips(circuit: str, k: int, claim: str, printed: str, why: str) -> Verdict:
        at = each(lambda s: dip(*s.rank(circuit, k), s.anchor)[1] / s.anchor, learned)

        def depth_of(study: Emergence) -> float:
            return dip(*study.rank(circuit, k), study.anchor)[0]

        deep_dips, control_dips = each(depth_of, learned), each(depth_of, control)
        return Verdict(
            claim,
            printed,
            f"depth in %: {by_depth(depth_of, 1, 100)}; the shallowest at 2 layers and more {100 * deep_dips.min():.1f}, the deepest at 1 layer "
            f"{100 * control_dips.max():.1f}. Lowest at {at.min():.2f} - {at.max():.2f} of emergence (2 layers and more)",
            beyond(deep_dips, control_dips),
            why,
        )

    def in_order(study: Emergence) -> float:
        """Rank correlation of k with where the curve without k components is lowest."""
        bottoms = [dip(*study.rank("qk", k), study.anchor)[1] for k in range(5)]
        return float(np.corrcoef(np.arange(5), rankdata(bottoms))[0, 1]) if np.ptp(bottoms) else 0.0

    def rising(study: Emergence) -> float:
        return float(np.mean(np.diff(study.rank("ov")[1]) > 0))

    def settled(horizon: float) -> Number:
        return lambda s: halfway_down(*s.distance(horizon)) / s.anchor

    def columns_settled(study: Emergence) -> float:
        return halfway_down(*study.column_distance(HORIZONS[-1])) / study.anchor

    def drift_against(when: float) -> Number:
        """Drift at emergence against drift at a multiple of it, each averaged over a tenth of that step around it."""

        def ratio(study: Emergence) -> float:
            at, speed = study.drift()
            here, there = (speed[np.abs(at / study.anchor / x - 1) < 0.1].mean() for x in (1.0, when))
            return float(here / there)

        return ratio

    def peak(values: Callable[[Emergence], Curve]) -> Number:
        scale = float(np.median([np.ptp(values(s)[1]) for s in learned]))
        return lambda s: nearest_peak(*values(s), s.anchor, scale)

    def cliff_of(study: Emergence) -> float:
        return cliff(metric(study.run, "loss"), study.anchor)

    def last_score(study: Emergence) -> float:
        return float(study.best_score("prefix_matching")[1][-1])

    def head_time(score: str) -> Number:
        return lambda s: probes.half_time(s.best_score(score)[1], s.best_score(score)[0]) / s.anchor

    end = each(lambda s: final_accuracy(s.run), learned)
    never = each(lambda s: final_accuracy(s.run), control)
    width = each(lambda s: (emergence(s.run, 0.9) - emergence(s.run, 0.1)) / s.anchor, learned)
    spans = {h: np.concatenate([each(settled(h), group) for group in deep.values()]) for h in HORIZONS}
    before = [bool((values <= 1.05).all()) for values in spans.values()]
    return [
        Verdict(
            "in-context learning emerges suddenly with 2 layers or more and never with 1",
            "section 4 (Olsson et al.)",
            f"final accuracy on repeated tokens: {by_depth(lambda s: final_accuracy(s.run))}. From a tenth to nine tenths of it within "
            f"{spread(width, 2)} of the step of emergence; steps "
            + "; ".join(f"{layers(d)} {', '.join(f'{s.anchor:.0f}' for s in group)}" for d, group in deep.items()),
            HOLDS if end.min() > 0.8 and never.max() < 0.2 else IN_PART if end.min() > never.max() else FAILS,
            "in every seed: above .8 against below .2",
        ),
        Verdict(
            "(ours) induction heads form then, previous-token heads with them",
            "Olsson et al. 2022",
            f"best prefix-matching score at the end: {by_depth(last_score)}; its half-time / emergence, 2 layers and "
            f"more: {spread(each(head_time('prefix_matching'), learned), 2)}, of the best previous-token score {spread(each(head_time('previous_token'), learned), 2)}",
            beyond(each(last_score, learned), each(last_score, control)),
            "what heads attend to, measured on fixed sequences every 25 steps",
        ),
        Verdict(
            "the loss falls in a cliff then",
            "section 4, Fig 3",
            f"find_transitions reports a cliff within 30 % of emergence: {seen_by_depth(cliff_of)}",
            seen_only_here(each(cliff_of, learned), each(cliff_of, control)),
            "in the loss over all tokens, which is all a trainer sees",
        ),
        dips(
            "qk",
            0,
            "QK effective rank dips around emergence, and not at 1 layer",
            "Fig 6B",
            "the plain rank: judged by whether every dip is deeper than any of the control's",
        ),
        dips(
            "qk",
            4,
            "marginalized QK rank dips around emergence, and not at 1 layer",
            "Fig 6B, k = 4",
            "without the four largest components",
        ),
        dips("ov", 0, "OV effective rank dips around emergence, and not at 1 layer", "Fig 6A", "the plain rank of OV"),
        Verdict(
            "marginalized curves have their minima one after another",
            "section 4, Fig 6",
            f"rank correlation of k = 0 .. 4 with where the QK curve is lowest near emergence: {by_depth(in_order)}",
            HOLDS
            if each(in_order, learned).min() > 0.99
            else IN_PART
            if each(in_order, learned).mean() > 0.5
            else FAILS,
            "1 would be one after another in every run, which was asked first and does not hold; at 1 layer the later minima are at the edge of what counts as near",
        ),
        Verdict(
            "at 1 layer OV effective rank rises monotonically",
            "section 4, Fig 6A",
            f"share of checkpoints at which it rises: {by_depth(rising)}",
            HOLDS if each(rising, control).min() > 0.9 else IN_PART if each(rising, control).mean() > 0.75 else FAILS,
            "mean over heads",
        ),
        Verdict(
            "subspaces settle before or with emergence",
            "Fig 5",
            "half-time of the distance / emergence, by what is taken as the end: "
            + "; ".join(f"{h:g} x: {by_depth(settled(h))}" for h in HORIZONS),
            HOLDS if all(before) else IN_PART if any(before) else FAILS,
            "it moves with the end chosen, in the control too; it would hold if no run were more than 5 % late at any horizon",
        ),
        Verdict(
            "(ours) the column space of OV, what heads write into, settles before or with emergence",
            "beside Fig 5",
            f"half-time of its distance / emergence, end at {HORIZONS[-1]:g} x: {by_depth(columns_settled)}",
            HOLDS
            if (each(columns_settled, learned) <= 1.05).all()
            else IN_PART
            if (each(columns_settled, learned) <= 1.05).mean() >= 0.5
            else FAILS,
            "Eq 16 is about the row space, this is its twin; by the same 5 %",
        ),
        Verdict(
            "(ours) row spaces keep moving until emergence and slow down after it",
            "beside Fig 5",
            f"drift at emergence / at {EARLIER:g} of it: {by_depth(drift_against(EARLIER))}; / at {LATER:g} of it: {by_depth(drift_against(LATER))}",
            together(
                *(beyond(each(drift_against(x), learned), each(drift_against(x), control)) for x in (EARLIER, LATER))
            ),
            "needs no end; judged against the control, which slows down steadily (where to compare was chosen after a first look at the curves)",
        ),
        Verdict(
            "peaks of the norm curvature mark emergence",
            "section 4, Fig 4B",
            f"a peak within a factor 1.5 of it: {seen_by_depth(peak(Emergence.norm_curvature))}",
            seen_only_here(
                each(peak(Emergence.norm_curvature), learned), each(peak(Emergence.norm_curvature), control)
            ),
            "norm of OV and QK of all heads",
        ),
        Verdict(
            "peaks of the loss autocorrelation's curvature mark emergence",
            "section 4, Fig 4A",
            f"a peak within a factor 1.5 of it: {seen_by_depth(peak(lambda s: s.autocorrelation))}",
            seen_only_here(
                each(peak(lambda s: s.autocorrelation), learned), each(peak(lambda s: s.autocorrelation), control)
            ),
            "of the training loss; the noise of the batches is in it",
        ),
    ]
