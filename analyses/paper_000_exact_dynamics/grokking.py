"""Figs 3B and 7 of paper 000: what the probes see of grokking, and what they see where nothing is understood.

Modular addition, three seeds, beside two controls in the same axes: random labels (nothing to understand) and weight
decay 0 (no pressure to understand). Quick: 5 runs, five minutes of processor time to train and half a minute to
measure, so three or four minutes on two cores. Expect: 99 % test accuracy 20 - 30 times later than 99 % training
accuracy; OV rank below that of random labels only after the test loss has dropped; drift of OV that stays up until then.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

import probes
from analyses.paper_000_exact_dynamics.grokking_figure import draw
from analyses.paper_000_exact_dynamics.grokking_study import HORIZONS, Grokking, autocorrelation, from_top, understood
from analyses.paper_000_exact_dynamics.mode_reach import reach_verdicts, yardstick
from analyses.paper_000_exact_dynamics.transformer_runs import RUNS, modular_addition_runs
from analyses.tools.page import Page
from analyses.tools.study import cliff, dip, each, halfway_down, metric, nearest_peak
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, Verdict, average, beyond, judge, seen, seen_only_here, spread

SPACING = {"toy": 20, "quick": 100, "paper": 200}  # of the drift, in steps


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    trained = modular_addition_runs(size, runs)
    when = [understood(run) for run in trained["grokking"]]
    last = trained["grokking"][0].steps[-1]
    usual = _or(average(when), last)
    studies = {
        name: [Grokking(run, _or(understood(run), usual), SPACING[size], HORIZONS) for run in group]
        for name, group in trained.items()
    }
    for study in tqdm([s for group in studies.values() for s in group], desc="measuring", unit="run", disable=None):
        _ = study.table, study.alignment, study.progress
    modes = {"linear head": [yardstick()]} | {name: [s.alignment.modes for s in g] for name, g in studies.items()}
    config = trained["grokking"][0].config
    task, optimizer = config["task"], config["optimizer"]
    return Page(
        "grokking",
        "Grokking and its controls (Figs 3B, 7)",
        SUMMARY,
        f"{task['operation']} mod {task['modulus']}, {100 * task['train_fraction']:g} % of pairs for training; one layer, "
        f"{config['n_heads']} heads of {config['d_head']}, d_model {config['d_model']}, MLP {config['d_mlp']}; AdamW, learning rate "
        f"{optimizer['learning_rate']:g}, weight decay {optimizer['weight_decay']:g}; {last} steps; {len(studies['grokking'])} seeds, "
        f"{len(studies['random labels'])} run(s) of each control",
        draw(studies, modes),
        CAPTION,
        judgements(studies) + reach_verdicts(modes, ["grokking"]),
    )


SUMMARY = (
    "Training and test accuracy part as described, in every seed. Most of what the probes show on the way is also there with random "
    "labels: effective rank falls under weight decay whether or not anything is understood, and QK collapses to one direction early. "
    "What the controls lack is the late movement of the OV row space, seen in its drift without choosing an end, and the bend of the "
    "norm that comes with it. When the subspace 'settles' is decided by where training is stopped."
)
CAPTION = (
    "Time is relative to each seed's step of 99 % test accuracy (controls: the mean of it over the seeds). Shaded: test accuracy "
    "between 50 and 99 %. Bands: mean and standard deviation over seeds. Random labels and weight decay 0 are controls: whatever they "
    "share with the grokking runs is no sign of grokking. (C) restricted: with nothing but the waves of the key frequencies; excluded: "
    "without them. (D) median and middle half over modes. (I) random subspace: what a subspace drawn at random scores."
)


def judgements(studies: dict[str, list[Grokking]]) -> list[Verdict]:
    """The claims on grokking, each with the controls' number beside it."""
    grokking, random, undecayed = studies["grokking"], studies["random labels"], studies["weight decay 0"]
    drop = float(np.mean(each(lambda s: s.test_drop / s.anchor, grokking)))  # where controls are read off

    def best_test(group: list[Grokking]) -> str:
        return spread(each(lambda s: 100 * metric(s.run, "test_accuracy").max(), group), 1)

    def rank_at_drop(study: Grokking) -> float:
        return study.at(study.rank("ov")[1], study.test_drop if study in grokking else drop * study.anchor)

    def rank_at_end(study: Grokking) -> float:
        return float(study.rank("ov")[1][-1])

    def slowing(study: Grokking) -> float:
        steps, drift = study.drift()
        before, during = (np.interp(x * study.anchor, steps, drift) for x in (0.5, 1.0))
        return float(during / before)

    def norm_after(study: Grokking) -> float:
        norm = study.norm("ov")
        top = int(norm.argmax())
        if top >= len(norm) - 2:
            return np.nan
        return probes.half_time(norm[top:], study.steps[top:]) / halfway_down(*study.distance("run's end"))

    bending = float(np.median([np.ptp(s.norm_curvature()[1]) for s in grokking]))

    def bend(study: Grokking) -> float:
        return nearest_peak(*study.norm_curvature(), study.anchor, bending)

    def correlation(loss: Callable[[Grokking], pd.Series]) -> Callable[[Grokking], float]:
        return lambda s: nearest_peak(*autocorrelation(loss(s)), drop * s.anchor, scale=1.0)

    def deepest(study: Grokking) -> float:
        return max(dip(*study.rank("ov", k), drop * study.anchor)[0] for k in range(5))

    ends, controls = list(grokking[0].ends()), random + undecayed
    delay = each(lambda s: understood(s.run) / s.learned, grokking)
    halves = {end: each(lambda s, end=end: halfway_down(*s.distance(end)), grokking) for end in ends}
    control_halves = {end: each(lambda s, end=end: halfway_down(*s.distance(end)), random) for end in ends}
    learned, control_learned = each(lambda s: s.learned, grokking), each(lambda s: s.learned, random)
    dropped = each(lambda s: s.test_drop, grokking)
    late = [(halves[end] / learned).min() > (control_halves[end] / control_learned).max() for end in ends]
    close = [np.abs(halves[end] / dropped - 1).mean() < 0.15 for end in ends]
    cliffs = each(lambda s: cliff(s.test_loss, drop * s.anchor), grokking)
    control_cliffs = each(lambda s: cliff(s.test_loss, drop * s.anchor), controls)
    low, control_low = each(rank_at_drop, grokking), each(rank_at_drop, random)
    lowest, control_lowest = each(rank_at_end, grokking), each(rank_at_end, random)
    on_train = each(correlation(lambda s: metric(s.run, "loss")), grokking)
    on_test = each(correlation(lambda s: s.test_loss), grokking)
    after = each(norm_after, grokking)
    restricted = each(
        lambda s: probes.half_time(from_top(pd.Series(s.progress["restricted_loss"]))) / s.test_drop, grokking
    )
    return [
        Verdict(
            "training loss drops early, test loss late",
            "Figs 3B, 7A",
            f"step of 99 % test accuracy / of 99 % training accuracy: {spread(delay, 1)} (smallest {delay.min():.1f}). Best test accuracy "
            f"in %: random labels {best_test(random)}, weight decay 0 {best_test(undecayed)}",
            HOLDS if (delay > 5).all() else IN_PART if average(delay) > 2 else FAILS,
            "neither control ever generalises",
        ),
        Verdict(
            "the loss has plateaus and cliffs like the linear model's",
            "Fig 3B",
            f"find_transitions reports a cliff of the test loss within 30 % of its half-drop: {seen(cliffs)}; controls: {seen(control_cliffs)}",
            seen_only_here(cliffs, control_cliffs),
            "the test loss slides for a long time before it falls, and so passes no strict test for a cliff; the training loss is flat by then",
        ),
        Verdict(
            "OV effective rank shows the delayed phase",
            "Fig 7B",
            f"at the test drop {spread(low, 2)}, random labels at that time {spread(control_low, 2)}, weight decay 0 {spread(each(rank_at_drop, undecayed), 2)}; "
            f"at the end {spread(lowest, 2)}, {spread(control_lowest, 2)}, {spread(each(rank_at_end, undecayed), 2)}",
            HOLDS if low.max() < control_low.min() else IN_PART if lowest.max() < control_lowest.min() else FAILS,
            "holds if every seed is below random labels at the test drop, in part if only at the end: it falls under weight decay anyway",
        ),
        Verdict(
            "the OV subspace settles long after the training loss",
            "Fig 7C",
            "half-time of the distance / step of 99 % training accuracy, by what is taken as the end: "
            + "; ".join(
                f"{e}: {spread(halves[e] / learned, 1)}, random labels {spread(control_halves[e] / control_learned, 1)}"
                for e in ends
            ),
            HOLDS if all(late) else IN_PART if any(late) else FAILS,
            "later than with random labels, whatever is taken as the end",
        ),
        Verdict(
            "it settles when the test loss drops",
            "Fig 7C",
            "half-time of the distance / half-drop of the test loss, by what is taken as the end: "
            + "; ".join(f"{e}: {spread(halves[e] / dropped, 2)}" for e in ends),
            HOLDS if all(close) else IN_PART if any(close) else FAILS,
            "decided by where training is stopped; within 15 % at every end would be holding",
        ),
        Verdict(
            "(ours) the OV row space is still moving when the test loss drops",
            "beside Fig 7C",
            f"drift at the step of 99 % test accuracy / at half of it: {spread(each(slowing, grokking), 2)}; random labels {spread(each(slowing, random), 2)}, "
            f"weight decay 0 {spread(each(slowing, undecayed), 2)}",
            beyond(each(slowing, grokking), each(slowing, controls)),
            "needs no end; judged against both controls, which have slowed down by then",
        ),
        Verdict(
            "directions first, magnitudes after",
            "section 4",
            f"half-time of the fall of ||OV|| / half-time of the subspace distance: {spread(after, 2)}",
            HOLDS if after.min() > 1 else IN_PART if average(after) > 1 else FAILS,
            "below 1: the norm has fallen before the subspace is halfway to where it ends",
        ),
        Verdict(
            "peaks of the norm curvature mark the transition",
            "section 4, Fig 4B",
            f"a peak within a factor 1.5 of 99 % test accuracy: {seen(each(bend, grokking))}; controls: {seen(each(bend, controls))}",
            seen_only_here(each(bend, grokking), each(bend, controls)),
            "only a peak that the controls lack is a sign",
        ),
        Verdict(
            "peaks of the loss autocorrelation's curvature mark the transition",
            "section 4, Fig 4A",
            f"a peak within a factor 1.5 of the test drop: training loss {seen(on_train)}; test loss {seen(on_test)}",
            HOLDS if np.isfinite(on_train).all() else IN_PART if np.isfinite(on_test).all() else FAILS,
            "the training loss is over by then; the test loss shows it",
        ),
        Verdict(
            "dips of the marginalized OV rank mark the transition",
            "section 4",
            f"deepest of k = 0 .. 4 near the test drop, in %: {spread(100 * each(deepest, grokking), 1)}; random labels {spread(100 * each(deepest, random), 1)}",
            beyond(each(deepest, grokking), each(deepest, random)),
            "there is none: the rank only falls",
        ),
        Verdict(
            "(ours) the Fourier circuit, by what the network computes",
            "Nanda et al. 2023",
            f"half-drop of the restricted loss / of the test loss: {spread(restricted, 2)}; frequencies in the embedding at the end "
            f"{spread(each(lambda s: s.progress['frequencies'].iloc[-1], grokking), 1)}, random labels "
            f"{spread(each(lambda s: s.progress['frequencies'].iloc[-1], random), 1)}; key frequencies by seed "
            + ", ".join(str(len(s.progress.attrs["key_frequencies"])) for s in grokking),
            judge(max(0.0, float(restricted.max()) - 1), 0.0, 0.1),
            "holds if the circuit is there, in every seed, before the test loss shows it",
        ),
    ]


def _or(value: float, default: float) -> float:
    return value if np.isfinite(value) else default
