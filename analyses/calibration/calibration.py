"""How often find_transitions is right: false alarms, recall, coverage, power and p-values, beside five peers.

Draws some eight thousand series of which the truth is known (see `cells`), runs the detector and its peers on them,
and judges what is promised of it. Half an hour on two quiet cores at size paper, that of the committed numbers; what was
run is kept in the folder of runs and not run again for the same release of the detector. Expect: false alarms at the nominal rate on short and on
autocorrelated records, most visible transitions found, and peers behind at the same false-alarm rate.
"""

import os
from pathlib import Path

import pandas as pd

from analyses.calibration.campaign import run_campaign
from analyses.calibration.cells import SEEDS
from analyses.calibration.compare import comparison
from analyses.calibration.figure import draw
from analyses.calibration.measures import measures
from analyses.calibration.panels import run_panels
from analyses.calibration.promises import judgements
from analyses.calibration.rows import rows_of_panels, table_of_rows
from analyses.calibration.tables import markdown
from analyses.tools.page import Page
from probes.series.calibration import release_of, release_of_this_code

RUNS = Path("checkpoints/runs")
BEFORE = Path(__file__).with_name("before.csv")
"""The measures of an earlier release, to stand beside those of this one."""


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Draw, detect, compare, judge."""
    folder, release = runs / "calibration", release_of_this_code()
    jobs = 1 if size == "toy" else os.cpu_count() or 1
    outcomes = run_campaign(folder, size, "judging", jobs=jobs)
    tuning = run_campaign(folder, size, "tuning", parts=["quiet"], jobs=jobs)
    compared = comparison(folder, size, outcomes, tuning)
    without_walks = comparison(folder, size, outcomes, tuning, walks=False)
    panels = run_panels(folder, size)
    now, before = measures(outcomes, panels), pd.read_csv(BEFORE)
    rows = [table_of_rows(outcomes, release), rows_of_panels(panels, release_of("events"))]
    earlier = before["release"].iloc[0]
    return Page(
        "calibration",
        "How often find_transitions is right",
        f"Release {release} on {len(outcomes)} series of which the truth is known, beside release {earlier} and five peers; "
        f"find_events on {len(panels)} panels of 144 heads. "
        "What counts as a transition, and which of them a person could see, is decided without a detector; CALIBRATION.md says "
        "what was corrected after first results.",
        f"judging seed {SEEDS['judging']}, meant to be used once for each release; tuning seed {SEEDS['tuning']}, on which the peers' "
        "thresholds are chosen; alpha = .01",
        draw(now, before, without_walks),
        "Above: false alarms on smooth drifts by number of values (colours: autocorrelation of the noise; line and dots: .01 "
        "and .02), visible transitions found by schedule, noise, kind and evidence (how many of its standard errors, se, the "
        "height is away from 0 in a fit that is told place, width and noise), and how often the interval of a row holds the "
        "true step. Below: recall of peers whose thresholds raise as many false alarms as we do in every cell; recall of two modes "
        "by noise and by their distance; p-values where nothing happens.",
        judgements(outcomes, panels, now, (compared, without_walks)),
        {
            "calibration.csv": pd.concat(rows).to_csv(index=False),
            "CALIBRATION.md": markdown(now, before, (release, earlier), compared, without_walks),
            "measures.csv": now.assign(release=release).to_csv(index=False),
        },
    )
