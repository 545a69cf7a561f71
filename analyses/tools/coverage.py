"""What of a paper is judged: every figure panel and numbered result beside the rows that judge it, or why none can.

A paper's folder has a `coverage.py` with the places of the paper, in its order:

    PLACES = (
        Place("Fig 1A", "p2 q1 ends diagonal"),
        Place("Theorem 4.2", "the error on new prompts"),
        Place("Fig 9", "softmax at width 512", why_not="a week on eight cards"),
    )

A row of the verdicts judges the places that its `printed` names: "section 3, Figs 3B, 7A" names two panels, "Eqs A111-
A114" four equations, "Figs 2a-c" three panels. A row (judged, or `Unjudged` with its reason) is the better answer; the
`why_not` of a place is for what has no row on any page, such as a definition. A figure with panels is judged panel by
panel: naming "Fig 3" alone judges neither 3A nor 3B.

`python -m analyses ... --committed` writes COVERAGE.md beside the verdicts it has written; `python -m
analyses.tools.coverage` writes all of them from the committed verdicts, in a second. tests/test_coverage.py asks that
every place has a row or a reason and not both, that rows name no place that is not listed, and that the files are these.
"""

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analyses.gallery.entries import committed_entries
from analyses.registry import GROUPS, PAPERS
from analyses.tools.verdicts import CANNOT, Verdict

_PLAIN = r"[A-Z]?\d+(?:\.\d+)*(?:[a-zA-Z](?![a-zA-Z]))?"  # 3B, A114, 4.11; A.12 is a section
_STATED = rf"(?:[A-Z]\.)?{_PLAIN}"  # Lemma D.1 too
_KINDS = {"Figs?": _PLAIN, "Eqs?": _PLAIN, "Tables?": _PLAIN} | dict.fromkeys(
    ("Theorems?", "Lemmas?", "Propositions?", "Corollar(?:y|ies)", "Results?", "Claims?", "Remarks?"), _STATED
)


def _listed(kind: str, number: str) -> re.Pattern[str]:
    one = rf"{number}(?:-(?:{number}|[a-zA-Z])\b)?"
    return re.compile(rf"\b({kind}) ({one}(?:(?:, | and ){one})*)")


_LISTS = [_listed(kind, number) for kind, number in _KINDS.items()]
_PANEL = re.compile(r"(.*\d)([a-zA-Z])")


@dataclass(frozen=True)
class Place:
    """A figure panel or a numbered result of a paper, and what it says. why_not: why no row judges it."""

    name: str
    says: str
    why_not: str = ""


@dataclass(frozen=True)
class Covered:
    """A place and the rows that judge it, each with the page it is on."""

    place: Place
    rows: Sequence[tuple[str, Verdict]]


def named_in(printed: str) -> list[str]:
    """The places that the `printed` of a row names, each as "Fig 3B", "Eq A114", "Theorem 4.2"."""
    found = []
    for kind, numbers in (match for pattern in _LISTS for match in pattern.findall(printed)):
        one = "Corollary" if kind == "Corollaries" else kind.removesuffix("s")
        found += [f"{one} {number}" for part in re.split(r", | and ", numbers) for number in _expanded(part)]
    return list(dict.fromkeys(found))


def _expanded(part: str) -> list[str]:
    """`2a-c` and `A111-A114` in full; anything else as it is."""
    first, dash, last = part.partition("-")
    if not dash:
        return [part]
    panel = _PANEL.fullmatch(first)
    if panel and re.fullmatch(r"[a-zA-Z]", last):
        return [panel[1] + chr(i) for i in range(ord(panel[2]), ord(last) + 1)]
    head, low, high = re.fullmatch(r"(\D*)\d+", first), re.search(r"\d+$", first), re.search(r"\d+$", last)
    if not (head and low and high):
        raise ValueError(f"{part!r} is no range that is understood: 2a-c and A111-A114 are")
    return [f"{head[1]}{i}" for i in range(int(low[0]), int(high[0]) + 1)]


def places_of(paper: str) -> Sequence[Place]:
    """What the paper's folder lists."""
    return importlib.import_module(f"analyses.{PAPERS[paper].folder}.coverage").PLACES


def has_places(paper: str) -> bool:
    """Whether the paper's folder has a list."""
    return (Path(__file__).parents[1] / PAPERS[paper].folder / "coverage.py").exists()


def committed_rows(paper: str) -> list[tuple[str, Verdict]]:
    """Every row of the committed verdicts of a paper, with its page."""
    groups = [name for name, group in GROUPS.items() if group.paper == paper]
    return [(entry.name, row) for name in groups for entry in committed_entries(name) for row in entry.verdicts]


def covered(places: Sequence[Place], rows: Sequence[tuple[str, Verdict]]) -> list[Covered]:
    """Each place with its rows."""
    named = [(page, row, set(named_in(row.printed))) for page, row in rows]
    return [Covered(place, [(page, row) for page, row, names in named if place.name in names]) for place in places]


def unlisted(places: Sequence[Place], rows: Sequence[tuple[str, Verdict]]) -> set[str]:
    """Places that rows name and the list does not have; a figure may be named without its panels."""
    known = {place.name for place in places}
    whole = {panel[1] for name in known if (panel := _PANEL.fullmatch(name))}
    return {name for _, row in rows for name in named_in(row.printed)} - known - whole


def table(paper: str, found: Sequence[Covered]) -> str:
    """The coverage of a paper as Markdown."""
    judged = [one for one in found if any(row.verdict != CANNOT for _, row in one.rows)]
    without = [one for one in found if not one.rows and not one.place.why_not]
    lines = [
        f"# Paper {paper}: what is judged, place by place",
        "",
        f"Of {len(found)} figure panels and numbered results {len(judged)} are judged by at least one row, "
        f"{len(found) - len(judged) - len(without)} cannot be judged here or are not claims, for the reason given"
        + (f", and {len(without)} have no row yet" if without else "")
        + ". Generated by `python -m analyses.tools.coverage` from the committed verdicts.",
        "",
        "| place | what it says | rows | outcome |",
        "|---|---|---|---|",
    ]
    for one in found:
        rows = "; ".join(f"{page}: {row.claim}" for page, row in one.rows) or "none"
        told = "; ".join(f"{row.verdict}" + (f" ({row.why})" if row.verdict == CANNOT else "") for _, row in one.rows)
        reason = f"no row: {one.place.why_not}" if one.place.why_not else "**no row yet**"
        cells = (one.place.name, one.place.says, rows, told or reason)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def coverage_file(paper: str) -> Path:
    """Where the committed table of a paper is."""
    return Path(__file__).parents[1] / PAPERS[paper].folder / "COVERAGE.md"


def write_coverage(paper: str) -> Path:
    """Write the table of a paper from its committed verdicts."""
    path = coverage_file(paper)
    path.write_text(table(paper, covered(places_of(paper), committed_rows(paper))), encoding="utf-8")
    return path


if __name__ == "__main__":
    for number in filter(has_places, PAPERS):
        print(write_coverage(number))
