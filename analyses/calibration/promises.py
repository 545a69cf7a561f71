"""What find_transitions promises, and whether the campaign bears it out: one verdict each."""

from collections.abc import Sequence
from math import inf

import pandas as pd

from analyses.calibration.cells import LONGER, PROPORTIONAL, SHORT
from analyses.calibration.compare import OURS, Compared, not_ahead, pooled
from analyses.calibration.judge import Outcome, Rate, false_alarms, recall, recall_by_evidence
from analyses.calibration.measures import P_LEVELS, rows_of, value_of
from analyses.calibration.panels import NULLS, POWERS, PanelOutcome, level, member_precision, power
from analyses.calibration.sampling import LONG, SPARSE
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, Verdict

DRIFT = "false alarms, smooth drift"
RECALL = "recall of visible transitions"
COVERAGE = "coverage of 95 % intervals"


def judgements(
    outcomes: Sequence[Outcome],
    panels: Sequence[PanelOutcome],
    now: pd.DataFrame,
    compared: tuple[Sequence[Compared], Sequence[Compared]],
) -> list[Verdict]:
    """What is promised, one by one. compared is with all nulls, and without random walks."""
    return [
        _short_records(now),
        _proportional(now),
        *_long_records(outcomes),
        _recall(outcomes),
        _coverage(now),
        _power(now),
        _directions(now),
        _dips(now),
        _p_values(now),
        _peers(*compared),
        _benign(now),
        _panels(panels),
    ]


def _short_records(now: pd.DataFrame) -> Verdict:
    cells = [f"{s}/{n}/{r}" for s in ("uniform", "log-spaced") for n in SHORT for r in ("0", "0.5", "0.8")]
    cells += [f"pythia/154/{r}" for r in ("0", "0.5", "0.8")]
    return _in_every_cell(
        now,
        cells,
        "at most .02 false alarms at alpha = .01 in every cell of 20 to 200 values x rho 0, .5, .8",
        "smooth drift under AR(1) noise, uniform, log-spaced and Pythia's steps",
    )


def _proportional(now: pd.DataFrame) -> Verdict:
    return _in_every_cell(
        now,
        [f"{s}/{n}/proportional" for s in ("uniform", "log-spaced") for n in PROPORTIONAL],
        "the same where the noise is in proportion to the curve",
        "smooth drift, noise of 2 to 50 % of its height over its lowest value plus a hundredth of that",
    )


def _in_every_cell(now: pd.DataFrame, cells: Sequence[str], claim: str, where: str) -> Verdict:
    rates = {cell: value_of(now, DRIFT, cell) for cell in cells}
    known = {cell: rate for cell, rate in rates.items() if rate[0] == rate[0]}
    over = {cell: rate for cell, rate in known.items() if rate[0] > 0.02}
    certain = [cell for cell, rate in over.items() if rate[1] > 0.02]
    worst = max(known, key=lambda cell: known[cell][0]) if known else "none"
    measured = f"{len(known) - len(over)} of {len(known)} cells at most .02"
    measured += (
        f"; the worst, {worst}: {known[worst][0]:.3f} [{known[worst][1]:.3f}, {known[worst][2]:.3f}]" if known else ""
    )
    refused = [cell for cell in cells if cell not in known]
    measured += f"; refused: {', '.join(refused)}" if refused else ""
    return Verdict(
        claim,
        where,
        measured,
        HOLDS if known and not over and not refused else FAILS if certain or not known else IN_PART,
        ("over .02: " + ", ".join(f"{c} {r[0]:.3f}" for c, r in over.items()))
        if over
        else "cliffs, stages and dips together",
    )


def _long_records(outcomes: Sequence[Outcome]) -> list[Verdict]:
    drift = false_alarms(o for o in outcomes if o.cell.startswith("level/") and o.values in LONGER)
    quiet = [o for o in outcomes if o.cell.startswith("quiet/") and o.values >= LONGER[0]]
    alarms, walks = false_alarms(quiet), false_alarms(o for o in quiet if "walk" in o.family)
    return [
        Verdict(
            "at most .01 from 300 values on",
            "smooth drift under AR(1) noise, rho 0, .5, .8",
            f"{drift}",
            _at_most(drift, limit=0.01),
            "all cells together: a single one has too few series to tell .01 from .02",
        ),
        Verdict(
            "the same in whatever else has no transition",
            "decays, power laws, kinks, noise, random walks, models without a transition",
            f"{alarms}, of random walks {walks}",
            _at_most(alarms, limit=0.01),
            "300 values and more",
        ),
    ]


def _at_most(*rates: Rate, limit: float) -> str:
    if all(rate.value <= limit for rate in rates):
        return HOLDS
    return IN_PART if all(rate.low <= limit for rate in rates) else FAILS


def _recall(outcomes: Sequence[Outcome]) -> Verdict:
    truth = [o for o in outcomes if o.cell.startswith("truth/")]
    quiet = [o for o in outcomes if o.cell.startswith("quiet/")]
    long, sparse = (recall(o for o in truth if o.schedule in kind) for kind in (LONG, SPARSE))
    together = f"together {recall(truth)}, false alarms {false_alarms(quiet)}"
    alarms = (
        false_alarms(o for o in quiet if o.schedule in LONG),
        false_alarms(o for o in quiet if o.schedule in SPARSE),
    )
    good = [rate.value >= 0.75 and alarm.value <= 0.02 for rate, alarm in zip((long, sparse), alarms, strict=True)]
    return Verdict(
        "three quarters of the visible transitions found, at no more than .02 false alarms",
        "all families, 300 values or more; and sparse schedules, 30 to 200",
        f"long records {long}, false alarms {alarms[0]}; sparse {sparse}, false alarms {alarms[1]}; {together}; "
        f"evidence of less than 5 standard errors {recall_by_evidence(truth, 0, 5)}, of 5 to 12 "
        f"{recall_by_evidence(truth, 5, 12)}, of 12 and more {recall_by_evidence(truth, 12, inf)}",
        HOLDS if all(good) else IN_PART if any(good) else FAILS,
        "visible: see analyses/calibration/truth.py; evidence: that of a fit which is told place, width and noise "
        "(evidence.py); a transition in a record that is refused counts as missed",
    )


def _coverage(now: pd.DataFrame) -> Verdict:
    """A few dozen intervals that all cover say little: a kind speaks against the promise where its count excludes it."""
    rows = [row for row in rows_of(now, COVERAGE) if row.of]
    off = [row for row in rows if not 0.9 <= row.value <= 0.98]
    below, above = [row for row in rows if row.high < 0.9], [row for row in rows if row.low > 0.98]
    return Verdict(
        "95 % intervals cover .90 to .98 in every family, sampling and noise",
        "the true step of every transition that was named",
        f"{len(rows) - len(off)} of {len(rows)} kinds between .90 and .98; of the others the counts exclude it in "
        f"{len(below) + len(above)}",
        FAILS if below else IN_PART if above else HOLDS,
        "; ".join(f"{r.where} {r.value:.2f} [{r.low:.2f}, {r.high:.2f}]" for r in off) or "in all of them",
    )


def _power(now: pd.DataFrame) -> Verdict:
    rates = {s: value_of(now, "power inside searched", s) for s in SPARSE}
    shares = {s: value_of(now, "share of the record searched", s)[0] for s in SPARSE}
    enough = [rate[0] >= 0.9 for rate in rates.values()]
    return Verdict(
        "a drop of height 1 under noise .02 is found in nine of ten places inside `searched`",
        "sparse schedules, up and down",
        "; ".join(
            f"{s} {rates[s][0]:.2f} [{rates[s][1]:.2f}, {rates[s][2]:.2f}] in {shares[s]:.2f} of the places"
            for s in SPARSE
        ),
        HOLDS if all(enough) else IN_PART if any(enough) else FAILS,
        "places are gaps between checkpoints; the share of them inside `searched` is the second number",
    )


def _directions(now: pd.DataFrame) -> Verdict:
    fall, rise, stage = (value_of(now, RECALL, where) for where in ("falls", "rises", "stages"))
    return Verdict(
        "rises are found as falls are, and stages in log time as well",
        "accuracies and planted weights rise; induction-like losses fall in a stage",
        ", ".join(
            f"{name} {r[0]:.2f} [{r[1]:.2f}, {r[2]:.2f}]"
            for name, r in (("falls", fall), ("rises", rise), ("stages", stage))
        ),
        HOLDS if min(rise[0], stage[0]) >= fall[0] - 0.1 else FAILS if rise[0] == 0 else IN_PART,
        "recall of visible ones, all schedules",
    )


def _dips(now: pd.DataFrame) -> Verdict:
    found, covered = ((m, value_of(now, m, "all")) for m in ("recall of visible dips", "coverage of dips"))
    rates = {s: (value_of(now, found[0], s), value_of(now, covered[0], s)) for s in (*LONG, *SPARSE)}
    good = found[1][0] >= 0.75, 0.9 <= covered[1][0] <= 1.0
    return Verdict(
        "three quarters of the visible dips found, and intervals that hold the turning point in nine of ten",
        "dips of ranks, uncorrelated noise, all schedules",
        f"found {found[1][0]:.2f} [{found[1][1]:.2f}, {found[1][2]:.2f}], "
        f"covered {covered[1][0]:.2f} [{covered[1][1]:.2f}, {covered[1][2]:.2f}]",
        HOLDS if all(good) else IN_PART if any(good) else FAILS,
        "found and covered by schedule: " + "; ".join(f"{s} {a[0]:.2f}, {b[0]:.2f}" for s, (a, b) in rates.items()),
    )


def _p_values(now: pd.DataFrame) -> Verdict:
    pairs = [(level, row) for level in P_LEVELS for row in rows_of(now, f"P(p <= {level:g})") if row.of]
    over = [(level, row) for level, row in pairs if row.low > level]
    return Verdict(
        "p-values are what they say where nothing happens: P(p <= a) is at most a",
        "smooth drifts, 50, 200 and 2000 values, rho 0, .5, .8",
        f"{len(pairs) - len(over)} of {len(pairs)} shares are at most a, or within their interval of it",
        HOLDS if pairs and not over else IN_PART if len(over) < 0.1 * len(pairs) else FAILS,
        "; ".join(f"P(p <= {level:g}) at {r.where}: {r.value:.3f}" for level, r in over) or "a from .001 to .3",
    )


def _peers(compared: Sequence[Compared], without_walks: Sequence[Compared]) -> Verdict:
    both = [("all nulls", compared), ("without random walks", without_walks)]
    said = []
    for name, rows in both:
        ours = next(row for row in pooled(rows) if row.method == OURS)
        best = max((row for row in pooled(rows) if row.method != OURS), key=lambda row: row.recall.value)
        said.append(
            f"{name}: ours {ours.recall.value:.2f} at {ours.alarms.value:.3f}, {best.method} {best.recall.value:.2f} at {best.alarms.value:.3f}"
        )
    behind = [pair for _, rows in both for pair in not_ahead(rows)]
    cells = dict.fromkeys(
        f"{its.schedule}, {its.noise}: {its.method} {its.recall.value:.2f}, ours {mine.recall.value:.2f}"
        for its, mine in behind
    )
    return Verdict(
        "ahead of every peer at the same false-alarm rate, in every cell",
        "ruptures (PELT, binary segmentation), log-slope peaks, a hidden Markov model, paper 000's autocorrelation curvature",
        "; ".join(said),
        HOLDS if not behind else IN_PART if len(behind) < 0.1 * len(compared) * 2 else FAILS,
        ("not ahead in: " + "; ".join(cells))
        if cells
        else "recall of visible transitions, each peer tuned in each cell",
    )


def _benign(now: pd.DataFrame) -> Verdict:
    rows, spikes = rows_of(now, "false alarms, benign"), rows_of(now, "spikes called spikes")
    shares = sorted(row.value for row in rows)
    return Verdict(
        "what healthy training does raises no cliff, stage or dip",
        "schedules of the learning rate, spikes, U-shapes, oscillation, jumps; 300 values or more",
        "; ".join(f"{row.where} {row.value:.2f}" for row in rows),
        HOLDS if shares[-1] <= 0.05 else IN_PART if shares[len(shares) // 2] <= 0.05 else FAILS,
        "series with a spike in which one is called so: " + ", ".join(f"{row.where} {row.value:.2f}" for row in spikes),
    )


def _panels(panels: Sequence[PanelOutcome]) -> Verdict:
    alarms = {
        what: level([o for o in panels if o.what == what])
        for what in dict.fromkeys(o.what for o in panels)
        if what in NULLS
    }
    powers = {
        what: power([o for o in panels if o.what == what])
        for what in dict.fromkeys(o.what for o in panels)
        if what in POWERS
    }
    members = member_precision(panels)
    good = all(rate.value <= 0.02 for rate in alarms.values()) and (not members.of or members.value >= 0.9)
    certain = any(rate.low > 0.02 for rate in alarms.values()) or (members.of > 0 and members.high < 0.9)
    return Verdict(
        "find_events on 144 heads: at most .02 false alarms at .01, and a tenth of the members wrong",
        "rho .6 and .9, shared noise, shared drift, private steps; log50, Pythia's, 150 and 30 uniform steps",
        "; ".join(f"{what} {rate}" for what, rate in alarms.items()) + f"; members that did step {members}",
        HOLDS if good else FAILS if certain else IN_PART,
        "power, stated even where low: " + "; ".join(f"{what} {rate}" for what, rate in powers.items()),
    )
