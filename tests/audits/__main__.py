"""`python -m tests.audits`: judge all planted faults and healthy runs, and write docs/audit.md. Minutes.

python -m tests.audits                    writes docs/audit.md beside what is kept of the audit before
python -m tests.audits --keep FILE.json   only keeps what this audit says: run with another checkout first on
                                          PYTHONPATH to keep what that one says
"""

import argparse
import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

from tests.audits.verdicts import SEEDS, Row, all_rows

ROOT = Path(__file__).parents[2]
BEFORE = Path(__file__).with_name("before.json")
BEFORE_COMMIT = "540a20a"
CANNOT = {
    "a small adapter merged between distant steps (transformer)": "no more than training moves attention there anyway"
}


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.audits", description=__doc__.splitlines()[0])
    options.add_argument("--keep", type=Path)
    chosen = options.parse_args()
    warnings.simplefilter("ignore")
    faults, healthy = all_rows()
    if chosen.keep:
        kept = {"faults": [asdict(row) for row in faults], "healthy": [asdict(row) for row in healthy]}
        chosen.keep.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        return 0
    known = json.loads(BEFORE.read_text(encoding="utf-8"))
    before = {kind: [Row(**row) for row in rows] for kind, rows in known.items()}
    text = page({"faults": faults, "healthy": healthy}, before)
    (ROOT / "docs" / "audit.md").write_text(text, encoding="utf-8")
    print(text.split("\n\n")[1])
    return 0


def page(now: dict[str, list[Row]], before: dict[str, list[Row]]) -> str:
    """The page: totals, a line for each planted fault, and the healthy runs that were ever condemned."""
    counts = []
    for rows in (now, before):
        judged = [row for row in rows["faults"] if row.name not in CANNOT]
        caught = f"{sum(row.is_caught for row in judged)} of {len(judged)}"
        besides = f"{sum(bool(row.condemned_besides) for row in rows['faults'])} of {len(rows['faults'])}"
        wrong = f"{sum(bool(row.condemned_besides) for row in rows['healthy'])} of {len(rows['healthy'])}"
        counts.append((caught, wrong, besides))
    lines = [
        "# What the audit catches",
        "",
        f"Planted faults caught: {counts[0][0]} (before, at {BEFORE_COMMIT}: {counts[1][0]}); {len(CANNOT)} more "
        f"cannot be told from training. Healthy runs with a condemned step: {counts[0][1]} (before: {counts[1][1]}). "
        f"Broken runs in which a step that was not touched is condemned: {counts[0][2]} (before: {counts[1][2]}).",
        "",
        f"`python -m tests.audits` writes this page. Each fault is planted in runs from {len(SEEDS)} seed"
        f"{'s' if len(SEEDS) > 1 else ''} that neither the tests nor the thresholds of the audit have seen (but the "
        "moments, of seed 0), and each healthy run is trained from there. "
        "Caught is a fault of which every planted step is named: condemned (left out by `measure`) "
        "or suspect (pointed at and measured).",
        "",
        "| planted | caught | said | caught before |",
        "|---|---|---|---|",
    ]
    for name in dict.fromkeys(row.name for row in now["faults"]):
        here, then = ([row for row in rows["faults"] if row.name == name] for rows in (now, before))
        said = dict.fromkeys(kind for row in here for kind in row.named.values())
        lines.append(f"| {name} | {_caught(here)} | {', '.join(said) or 'nothing'} | {_caught(then)} |")
    lines += ["", "| healthy run | seeds in which a step is condemned | before |", "|---|---|---|"]
    odd = 0
    names = list(dict.fromkeys(row.name for row in now["healthy"]))
    for name in names:
        wrong = [
            sum(bool(row.condemned_besides) for row in rows["healthy"] if row.name == name) for rows in (now, before)
        ]
        if any(wrong):
            odd += 1
            lines.append(f"| {name} | {wrong[0]} | {wrong[1]} |")
    lines += [f"| the other {len(names) - odd} | 0 | 0 |", ""]
    return "\n".join(lines)


def _caught(rows: list[Row]) -> str:
    count = sum(row.is_caught for row in rows)
    if rows[0].name in CANNOT and not count:
        return f"cannot be: {CANNOT[rows[0].name]}"
    return f"{count} of {len(rows)}"


if __name__ == "__main__":
    sys.exit(main())
