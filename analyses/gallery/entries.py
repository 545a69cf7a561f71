"""What the gallery shows: every page of the registry, as it was drawn here or as its committed verdicts have it.

A page that was drawn left `page.json` and `figure.png` in its folder. One that was not is shown by its committed
verdicts alone, and says so: nothing is left out without a word.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analyses.gallery.formulas import FORMULAS, Formula
from analyses.gallery.reports import reports_of
from analyses.registry import GROUP_OF, GROUPS, PAPERS, paper_of
from analyses.tools.page import Page
from analyses.tools.verdicts import Verdict


@dataclass(frozen=True)
class Entry:
    """One page in the gallery. size is None where it was not drawn here and the verdicts are the committed ones."""

    name: str
    title: str
    summary: str
    facts: str
    caption: str
    verdicts: Sequence[Verdict]
    size: str | None
    figure: bytes | None
    reports: Sequence[str] = ()

    @property
    def paper(self) -> str:
        """The number of the paper whose claims it judges."""
        return paper_of(self.name)

    @property
    def formulas(self) -> Sequence[Formula]:
        """What is judged, as it is printed."""
        return FORMULAS.get(self.name, ())

    @property
    def command(self) -> str:
        """What draws it, at the size it was drawn or would be committed at."""
        return f"python -m analyses {self.name} --size {self.size or GROUPS[GROUP_OF[self.name]].size}"

    @property
    def committed(self) -> str:
        """Where the committed verdicts are, from the root of the project."""
        group = GROUPS[GROUP_OF[self.name]]
        return f"analyses/{PAPERS[group.paper].folder}/{group.verdicts}"


def of_page(page: Page, size: str, reports: Sequence[str] = ()) -> Entry:
    """A page that was just drawn."""
    words = (page.title, page.summary, page.facts, page.caption)
    return Entry(page.name, *words, page.verdicts, size, page.png, reports)


def keep(page: Page, size: str, directory: Path) -> None:
    """Leave beside the figure what the gallery of a later call needs to show the page again."""
    content = {name: getattr(page, name) for name in ("name", "title", "summary", "facts", "caption")}
    content |= {"size": size, "verdicts": [vars(verdict) for verdict in page.verdicts]}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (directory / page.name / "page.json").write_text(text, encoding="utf-8")


def gathered(directory: Path) -> list[Entry]:
    """Every page there is, in the order of the registry: drawn under this directory, or committed; with its reports."""
    committed = {entry.name: entry for group in GROUPS for entry in committed_entries(group)}
    entries = [_drawn(directory, name) or committed[name] for name in GROUP_OF]
    return [replace(entry, reports=reports_of(entry.name, directory)) for entry in entries]


def committed_entries(group: str) -> list[Entry]:
    """The pages of a group from its file of verdicts: `## title`, a summary, facts in italics, a table."""
    text = GROUPS[group].verdicts_file.read_text(encoding="utf-8")
    sections = re.split(r"^## (?:Paper \d+ · )?", text, flags=re.MULTILINE)[1:]
    return [_committed(name, section) for name, section in zip(GROUPS[group].pages, sections, strict=True)]


def _committed(name: str, section: str) -> Entry:
    title, summary, facts, table = (part.strip() for part in section.split("\n\n", 3))
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()[2:] if line.startswith("|")]
    cells = [[cell.strip().replace("\\|", "|") for cell in row] for row in rows]
    verdicts = [Verdict(row[0], row[1], row[2], row[3].strip("*"), *row[4:]) for row in cells]
    return Entry(name, title, summary, facts.strip("*"), "", verdicts, None, None)


def _drawn(directory: Path, name: str) -> Entry | None:
    try:
        content = json.loads((directory / name / "page.json").read_text(encoding="utf-8"))
        figure = (directory / name / "figure.png").read_bytes()
    except FileNotFoundError:
        return None
    verdicts = [Verdict(**verdict) for verdict in content.pop("verdicts")]
    return Entry(**content, verdicts=verdicts, figure=figure)
