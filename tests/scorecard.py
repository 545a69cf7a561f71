"""How many claims hold, in the README, counted from the committed verdicts: `python -m tests.scorecard` writes it anew.

Each row of the table links to a file of verdicts; its numbers are replaced, its words are left as they are.
"""

import re
import sys
from collections import Counter
from pathlib import Path

from analyses.gallery.entries import committed_entries
from analyses.gallery.render import KINDS
from analyses.registry import GROUPS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
ROW = re.compile(r"^\| (?P<name>\[[^]]+\]\((?P<file>analyses/[^)]+)\)|\*\*all\*\*) \|(?: *\d+ \|){4}", re.M)


def counted(text: str) -> str:
    """The text with the numbers of its scorecard as the committed verdicts have them."""
    of_file = {group.verdicts_file.relative_to(ROOT).as_posix(): counts(name) for name, group in GROUPS.items()}
    everything = sum(of_file.values(), Counter())

    def row(match: re.Match) -> str:
        found = of_file[match["file"]] if match["file"] else everything
        return f"| {match['name']} | " + " | ".join(str(found[word]) for word in KINDS) + " |"

    return ROW.sub(row, text)


def counts(group: str) -> Counter[str]:
    """How many of its claims got each verdict."""
    return Counter(verdict.verdict for entry in committed_entries(group) for verdict in entry.verdicts)


def main() -> None:
    README.write_text(counted(README.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write("README.md\n")


if __name__ == "__main__":
    main()
