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

from tests.audits.verdicts import Row, all_rows

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
    before = {row["name"]: Row(**row) for row in [*known["faults"], *known["healthy"]]}
    text = table(faults, healthy, before)
    (ROOT / "docs" / "audit.md").write_text(text, encoding="utf-8")
    print(text.split("\n\n")[1])
    return 0


def table(faults: list[Row], healthy: list[Row], before: dict[str, Row]) -> str:
    """The page."""
    judged = [row for row in faults if row.name not in CANNOT]
    caught = sum(row.is_caught for row in judged)
    caught_before = sum(before[row.name].is_caught for row in judged)
    false = [sum(bool(row.condemned_besides) for row in rows) for rows in (healthy, [before[h.name] for h in healthy])]
    others = [
        sum(bool(row.condemned_besides) for row in rows) for rows in (faults, [before[fault.name] for fault in faults])
    ]
    lines = [
        "# What the audit catches",
        "",
        f"Planted faults caught: {caught} of {len(judged)} (before, at {BEFORE_COMMIT}: {caught_before}); "
        f"{len(CANNOT)} more cannot be told from training. Healthy runs with a condemned step: {false[0]} of "
        f"{len(healthy)} (before: {false[1]}). Broken runs in which a step that was not touched is condemned: "
        f"{others[0]} of {len(faults)} (before: {others[1]}).",
        "",
        "`python -m tests.audits` writes this page. All runs are trained from seeds that neither the tests nor the "
        "thresholds of the audit have seen. Caught is a fault of which every planted step is named: condemned (left "
        "out by `measure`) or suspect (pointed at and measured).",
        "",
        "| planted | now | said | before |",
        "|---|---|---|---|",
    ]
    lines += [f"| {row.name} | {_state(row)} | {_said(row)} | {_state(before[row.name])} |" for row in faults]
    odd = [row for row in healthy if row.condemned_besides or before[row.name].condemned_besides]
    lines += ["", "| healthy run | condemned now | before |", "|---|---|---|"]
    lines += [f"| {row.name} | {_steps(row)} | {_steps(before[row.name])} |" for row in odd]
    lines += [f"| the other {len(healthy) - len(odd)} | none | none |", ""]
    return "\n".join(lines)


def _state(row: Row) -> str:
    besides = f"; condemns {_steps(row)} besides" if row.condemned_besides else ""
    if row.name in CANNOT and not row.is_caught:
        return f"cannot be: {CANNOT[row.name]}{besides}"
    return ("caught" if row.is_caught else "not caught") + besides


def _said(row: Row) -> str:
    return ", ".join(dict.fromkeys(row.named.values())) or "nothing"


def _steps(row: Row) -> str:
    return ", ".join(map(str, row.condemned_besides[:4])) + (" ..." if len(row.condemned_besides) > 4 else "") or "none"


if __name__ == "__main__":
    sys.exit(main())
