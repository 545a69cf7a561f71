"""CALIBRATION.md: every number of the calibration, the earlier release beside this one, as Markdown."""

from collections.abc import Sequence

import pandas as pd

from analyses.calibration.cells import SEEDS
from analyses.calibration.compare import Compared, not_ahead, pooled
from analyses.calibration.sampling import SCHEDULES

HEAD = """# How often find_transitions is right

Written by `python -m analyses calibration --committed`; release **{release}**, beside **{before}**.

Tuning seed {tuning}, judging seed {judging} (`analyses/calibration/cells.py`). Whatever was chosen with an eye on
results was chosen on the tuning seeds; the judging seeds are meant to be run once for each release, and all numbers
here are theirs.
Brackets are 95 % intervals of the counts beside them.

What counts as a transition, and what as visible, is in `analyses/calibration/truth.py`, without any detector. It was
written before the first run; corrections after that (the induction family, drops that end beyond the record, SGD) are
named there and in `analyses/calibration/solvable.py`. {before} was judged on seeds that are retired since, so that the
two columns are of different series of the same kinds.
A null with a row of kind cliff, stage or dip is a false alarm. "refused" means that the detector raised: it did not look.
"""


def markdown(
    now: pd.DataFrame,
    before: pd.DataFrame,
    names: tuple[str, str],
    compared: Sequence[Compared],
    without_walks: Sequence[Compared],
) -> str:
    """The whole file. names are those of this release and of the earlier one."""
    parts = [HEAD.format(release=names[0], before=names[1], **SEEDS)]
    for measure in dict.fromkeys(now["measure"].tolist()):
        parts += ["", f"## {measure[0].upper()}{measure[1:]}", "", f"| | {names[0]} | {names[1]} |", "|---|---|---|"]
        for where in now.loc[now["measure"] == measure, "where"].tolist():
            parts.append(f"| {where} | {_cell(now, measure, where)} | {_cell(before, measure, where)} |")
    parts += ["", *_peers("all quiet nulls", compared), "", *_peers("quiet nulls without random walks", without_walks)]
    return "\n".join(parts) + "\n"


def _cell(table: pd.DataFrame, measure: str, where: str) -> str:
    found = table[(table["measure"] == measure) & (table["where"] == where)]
    if not len(found):
        return "not measured"
    value, low, high, hits, of = (found.iloc[0][name] for name in ("value", "low", "high", "hits", "of"))
    if not of:
        return "refused" if "alarms" in measure else "none"
    return f"{value:.4f} (of {of:.0f})" if pd.isna(low) else f"{value:.3f} [{low:.3f}, {high:.3f}] {hits:.0f}/{of:.0f}"


def _peers(nulls: str, rows: Sequence[Compared]) -> list[str]:
    """One table at equal false-alarm rate, then recall cell by cell, then where we are not ahead."""
    lines = [
        f"## Peers at our false-alarm rate: {nulls}",
        "",
        "| method | false alarms | recall | precision |",
        "|---|---|---|---|",
    ]
    lines += [f"| {row.method} | {row.alarms} | {row.recall} | {row.precision} |" for row in pooled(rows)]
    methods = list(dict.fromkeys(row.method for row in rows))
    lines += ["", "Recall by cell:", "", "| schedule | noise | visible | " + " | ".join(methods) + " |"]
    lines.append("|" + "---|" * (3 + len(methods)))
    table = {(row.schedule, row.noise, row.method): row for row in rows}
    for schedule in SCHEDULES:
        for noise in dict.fromkeys(row.noise for row in rows):
            entries = [table[schedule, noise, method] for method in methods if (schedule, noise, method) in table]
            if entries:
                shares = " | ".join(f"{row.recall.value:.2f}" for row in entries)
                lines.append(f"| {schedule} | {noise} | {entries[0].recall.of} | {shares} |")
    behind = not_ahead(rows)
    lines += ["", "Cells in which a peer finds as many or more:" if behind else "No peer finds as many in any cell."]
    lines += [f"- {p.schedule}, {p.noise}: {p.method} {p.recall}, ours {m.recall}" for p, m in behind]
    return lines
