"""Our detector beside its peers, cell by cell, at the same false-alarm rate.

In every cell (a schedule and a group of noises) a peer's threshold is the lowest at which it raises no more false
alarms on the quiet nulls of the tuning seeds than our detector does there: a threshold of its own for each cell, which
is kinder to peers than one for all. Then both are judged on the judging seeds. Random walks have changes of level that
are nobody's transitions, and a method that looks for changes of level must pass over all of them: the comparison is
made with and without them among the nulls.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analyses.calibration.cells import NOISE_GROUPS, Case, cells
from analyses.calibration.hidden_markov import hidden_markov
from analyses.calibration.judge import Outcome, Rate, precision, recall
from analyses.calibration.peers import PEERS, Levels
from analyses.calibration.sampling import SCHEDULES

OURS = "find_transitions"
HIDDEN_MARKOV = "hidden Markov model"
NAMES = (*PEERS, HIDDEN_MARKOV)
WALKS = ("random walk", "walk in time")


@dataclass(frozen=True)
class Compared:
    """One method in one cell."""

    schedule: str
    noise: str
    method: str
    alarms: Rate
    recall: Rate
    precision: Rate


@dataclass(frozen=True)
class PeerCell:
    """What all peers say of the series of one cell: by peer, the levels of every series."""

    levels: dict[str, list[Levels]]


def peers_on(folder: Path, size: str, seeds: str, name: str, cases: Sequence[Case]) -> PeerCell:
    """From the folder if it is there, else computed and kept. Peers do not change with our releases."""
    path = folder / "peers" / size / seeds / (name.replace("/", "--").replace(" ", "_") + ".json")
    if not path.exists():
        found = {peer: [function(case) for case in cases] for peer, function in PEERS.items()}
        found[HIDDEN_MARKOV] = hidden_markov(cases)
        kept = {peer: [[x.thresholds.tolist(), x.findings] for x in levels] for peer, levels in found.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(kept), encoding="utf-8")
        partial.replace(path)
    kept = json.loads(path.read_text(encoding="utf-8"))
    return PeerCell({peer: [_levels(*entry) for entry in entries] for peer, entries in kept.items()})


def _levels(thresholds: list[float], findings: list) -> Levels:
    return Levels(np.array(thresholds), tuple(tuple((at, way) for at, way in found) for found in findings))


def threshold(highest: Sequence[float], alarms: int) -> float:
    """The lowest threshold beyond which at most `alarms` of these series still find anything."""
    ordered = np.sort(np.asarray(highest))[::-1]
    return float(ordered[alarms]) if alarms < len(ordered) else -np.inf


def comparison(
    folder: Path, size: str, ours: Sequence[Outcome], ours_tuning: Sequence[Outcome], *, walks: bool = True
) -> list[Compared]:
    """One entry for each cell and method: false alarms on nulls, recall and precision on visible transitions."""
    rows = []
    judging, tuning = ({cell.name: cell for cell in cells(size, seeds)} for seeds in ("judging", "tuning"))
    for schedule in SCHEDULES:
        for group in NOISE_GROUPS:
            null_name, truth_name = f"quiet/{schedule}/{group}", f"truth/{schedule}/{group}"
            if null_name not in judging:
                continue
            nulls = [o for o in ours if o.cell == null_name and (walks or o.family not in WALKS)]
            truths = [o for o in ours if o.cell == truth_name]
            alarms = sum(
                bool(o.claims) for o in ours_tuning if o.cell == null_name and (walks or o.family not in WALKS)
            )
            rows.append(_row(schedule, group, OURS, [bool(o.claims) for o in nulls], truths))
            to_tune = list(tuning[null_name].cases("tuning"))
            null_cases, truth_cases = (list(judging[name].cases("judging")) for name in (null_name, truth_name))
            tuned_on = peers_on(folder, size, "tuning", null_name, to_tune)
            on_nulls = peers_on(folder, size, "judging", null_name, null_cases)
            on_truths = peers_on(folder, size, "judging", truth_name, truth_cases)
            use = [walks or case.shape.family not in WALKS for case in to_tune]
            judged = [walks or case.shape.family not in WALKS for case in null_cases]
            for peer in NAMES:
                highest = [x.highest for x, keep in zip(tuned_on.levels[peer], use, strict=True) if keep]
                limit = threshold(highest, alarms)
                raised = [x.highest > limit for x, keep in zip(on_nulls.levels[peer], judged, strict=True) if keep]
                said = [levels.above(limit) for levels in on_truths.levels[peer]]
                found = [outcome.with_findings(findings) for outcome, findings in zip(truths, said, strict=True)]
                rows.append(_row(schedule, group, peer, raised, found))
    return rows


def _row(schedule: str, group: str, method: str, raised: Sequence[bool], found: Sequence[Outcome]) -> Compared:
    return Compared(schedule, group, method, Rate(sum(raised), len(raised)), recall(found), precision(found))


def pooled(rows: Sequence[Compared]) -> list[Compared]:
    """The methods over all cells."""
    methods = dict.fromkeys(row.method for row in rows)
    return [
        Compared(
            "all",
            "all",
            method,
            *(
                _sum([getattr(r, name) for r in rows if r.method == method])
                for name in ("alarms", "recall", "precision")
            ),
        )
        for method in methods
    ]


def _sum(rates: Sequence[Rate]) -> Rate:
    return Rate(sum(rate.hits for rate in rates), sum(rate.of for rate in rates))


def not_ahead(rows: Sequence[Compared]) -> list[tuple[Compared, Compared]]:
    """Where a peer finds at least as many of the visible transitions as we do: that peer there, and we."""
    ours = {(row.schedule, row.noise): row for row in rows if row.method == OURS}
    pairs = [(row, ours[row.schedule, row.noise]) for row in rows if row.method != OURS and row.recall.of]
    return [(its, mine) for its, mine in pairs if its.recall.hits >= mine.recall.hits]
