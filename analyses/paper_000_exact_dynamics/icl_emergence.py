"""Figs 5 and 6 of paper 000: what the probes see when attention-only transformers begin to learn in context.

One to four layers on the repeated-subsequence task; the 1-layer model, which cannot solve it, is the control in the same
axes. Quick: six seeds of every depth, 21 minutes of processor time to train and two to measure; two thirds of that for
fresh ones, trained after the rules were fixed: six of 1 and 2 layers, three of 3 and 4. Expect: accuracy on repeated
tokens .9 and more at 2 - 4 layers against .1; the QK rank without its four largest components notched at emergence, by 8 -
12 % in the mean of a depth against 1 - 3 % in the controls; induction heads form with it.
"""

from pathlib import Path

import numpy as np
from tqdm import tqdm

from analyses.paper_000_exact_dynamics.icl_emergence_claims import CLAIMS
from analyses.paper_000_exact_dynamics.icl_emergence_figure import draw
from analyses.paper_000_exact_dynamics.icl_emergence_measures import Seen
from analyses.paper_000_exact_dynamics.icl_emergence_study import CONTROL, HORIZONS, Emergence, emergence, layers
from analyses.paper_000_exact_dynamics.mode_reach import yardstick
from analyses.paper_000_exact_dynamics.transformer_runs import RUNS, attention_only_runs, first_and_fresh
from analyses.tools.claims import judged, judged_by_both
from analyses.tools.page import Page
from analyses.tools.verdicts import average
from checkpoints import Run

SPACING = {"toy": 20, "quick": 50, "paper": 50}  # of the drift, in steps


def run(size: str = "quick", runs: Path = RUNS, *, fresh: bool = False) -> Page:
    """Train or load, measure, draw, judge."""
    first = attention_only_runs(size, runs)
    others = attention_only_runs(size, runs, fresh=True) if fresh else None
    seen, again = studied(first, size), studied(others, size) if others else None
    config = first[2][0].config
    task, optimizer = config["task"], config["optimizer"]
    return Page(
        "icl_emergence",
        "In-context learning emerges in attention-only transformers (Figs 5, 6)",
        SUMMARY,
        f"{task['length']} tokens of {task['vocabulary']}, {task['copies']} copies of {task['subsequence']}; {config['n_heads']} heads of "
        f"{config['d_head']}, d_model {config['d_model']}; AdamW, learning rate {optimizer['learning_rate']:g}, weight decay "
        f"{optimizer['weight_decay']:g}, batch {config['batch']}; {first[2][0].steps[-1]} steps; "
        + first_and_fresh(first, others),
        draw(seen.studies, seen.modes),
        CAPTION,
        judged_by_both(CLAIMS, seen, again, ("first seeds", "fresh seeds")) if again else judged(CLAIMS, seen),
    )


def studied(trained: dict[int, list[Run]], size: str) -> Seen:
    """Measure every run, against its own step of emergence; a control against the mean of the 2-layer runs."""
    usual = average([emergence(run) for run in trained[2]])
    usual = usual if np.isfinite(usual) else trained[2][0].steps[-1] / 2

    def study(run: Run) -> Emergence:
        own = emergence(run)
        return Emergence(run, own if np.isfinite(own) else usual, SPACING[size], HORIZONS)

    studies = {depth: [study(run) for run in group] for depth, group in trained.items()}
    for one in tqdm([s for group in studies.values() for s in group], desc="measuring", unit="run", disable=None):
        _ = one.table, one.alignment
    modes = {layers(depth): [s.alignment.modes for s in group] for depth, group in studies.items()}
    return Seen(studies, {"linear head": [yardstick()]} | modes)


WHICH_MODELS = (
    "These are small models trained here, in minutes, on a task made of random tokens; the paper used published "
    "attention-only models of 1 to 4 layers that were trained on text (page published_models)."
)
SUMMARY = (
    f"{WHICH_MODELS} In-context learning emerges suddenly at 2 layers and more and never at 1. Most of what the probes show on the way is "
    "judged against the 1-layer models: what those share is no sign of emergence. The rules were fixed on the first seeds; where "
    "fresh ones, trained afterwards, are judged as well, the weaker of the two words counts. "
    "When subspaces 'settle' depends on where training is stopped, in the control too."
)
CAPTION = (
    "Time is relative to the step at which each run reaches half of its final accuracy on repeated tokens (1 layer, which never "
    "learns: the mean of it over the 2-layer runs). Shaded: from a tenth to nine tenths of the final accuracy. Bands: mean and "
    f"standard deviation over the first seeds. The {layers(CONTROL)} model is the control: whatever it shares with the others is no sign of "
    "emergence."
)
