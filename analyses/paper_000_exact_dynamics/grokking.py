"""Figs 3B and 7 of paper 000: modular addition, learned by heart early and understood late, beside runs that never do.

The controls are what makes the claims worth judging: random labels can only be learned by heart, and without weight
decay nothing makes the network give that up. Quick: six runs and six of each control, 15 minutes of processor time to
train and two to measure; fresh ones, trained after the rules were fixed: six runs and three of each control, ten minutes.
Expect: 99 % test accuracy 26 times later than 99 % training accuracy (9 in the quickest; one fresh seed comes no further
than 98.9 %); OV rank below that of random labels only after the test loss has dropped; drift of OV that stays up until
then.
"""

from pathlib import Path

import numpy as np
from tqdm import tqdm

from analyses.paper_000_exact_dynamics.grokking_claims import CLAIMS, Seen
from analyses.paper_000_exact_dynamics.grokking_figure import draw
from analyses.paper_000_exact_dynamics.grokking_study import HORIZONS, Grokking, understood
from analyses.paper_000_exact_dynamics.mode_reach import yardstick
from analyses.paper_000_exact_dynamics.transformer_runs import (
    FRESH_MODULAR_SEEDS,
    RUNS,
    first_and_fresh,
    modular_addition_runs,
)
from analyses.tools.claims import judged, judged_by_both
from analyses.tools.page import Page
from analyses.tools.verdicts import average
from checkpoints import Run

SPACING = {"toy": 20, "quick": 100, "paper": 200}  # of the drift, in steps


def run(size: str = "quick", runs: Path = RUNS, *, fresh: bool = False) -> Page:
    """Train or load, measure, draw, judge."""
    first = modular_addition_runs(size, runs)
    others = modular_addition_runs(size, runs, fresh=True) if fresh and size in FRESH_MODULAR_SEEDS else None
    seen, again = studied(first, size), studied(others, size) if others else None
    config = first["grokking"][0].config
    task, optimizer = config["task"], config["optimizer"]
    return Page(
        "grokking",
        "Grokking and its controls (Figs 3B, 7)",
        LARGER if size == "paper" else SUMMARY,
        f"{task['operation']} mod {task['modulus']}, {100 * task['train_fraction']:g} % of pairs for training; one layer, "
        f"{config['n_heads']} heads of {config['d_head']}, d_model {config['d_model']}, MLP {config['d_mlp']}; AdamW, learning rate "
        f"{optimizer['learning_rate']:g}, weight decay {optimizer['weight_decay']:g}; {first['grokking'][0].steps[-1]} steps; "
        + first_and_fresh(first, others),
        draw(seen.studies, seen.modes),
        CAPTION,
        judged_by_both(CLAIMS, seen, again, ("first seeds", "fresh seeds")) if again else judged(CLAIMS, seen),
    )


def studied(trained: dict[str, list[Run]], size: str) -> Seen:
    """Measure every run, against its own step of 99 % test accuracy; a control against the mean of those."""
    usual = average([understood(run) for run in trained["grokking"]])
    usual = usual if np.isfinite(usual) else trained["grokking"][0].steps[-1]

    def study(run: Run) -> Grokking:
        own = understood(run)
        return Grokking(run, own if np.isfinite(own) else usual, SPACING[size], HORIZONS)

    studies = {name: [study(run) for run in group] for name, group in trained.items()}
    for one in tqdm([s for group in studies.values() for s in group], desc="measuring", unit="run", disable=None):
        _ = one.table, one.alignment, one.progress
    modes = {name: [s.alignment.modes for s in group] for name, group in studies.items()}
    return Seen(studies, {"linear head": [yardstick()]} | modes)


SUMMARY = (
    "These are one-layer models of addition modulo 59, trained here in a minute each; the paper used one of Nanda et al., modulo 113 (size "
    "paper of this page). Training and test accuracy part as described. Most of what the probes show on the way is also there with random "
    "labels: effective rank falls under weight decay whether or not anything is understood, and QK collapses to one direction early. "
    "When the subspace 'settles' is decided by where training is stopped; its drift needs no end."
)
LARGER = (
    "These are one-layer models of addition modulo 113, as the paper's, which was one of Nanda et al.; trained here in ten minutes each. "
    "The rules are those that were fixed modulo 59, where there are more runs (size quick of this page)."
)
CAPTION = (
    "Time is relative to each seed's step of 99 % test accuracy (controls: the mean of it over the seeds). Shaded: test accuracy "
    "between 50 and 99 %. Bands: mean and standard deviation over seeds. Random labels and weight decay 0 are controls: whatever they "
    "share with the grokking runs is no sign of grokking. (C) restricted: with nothing but the waves of the key frequencies; excluded: "
    "without them. (D) median and middle half over modes. (I) random subspace: what a subspace drawn at random scores."
)
