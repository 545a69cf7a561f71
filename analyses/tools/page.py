"""A page: a picture, what it shows, and its verdicts. The gallery shows pages side by side; here are their files."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from matplotlib.figure import Figure

from analyses.registry import paper_of
from analyses.tools.draw import tidy_log_axes
from analyses.tools.verdicts import Verdict, table


@dataclass(frozen=True)
class Page:
    """What an analysis has to show: summary before the picture, caption after it, facts about the runs behind it.

    files are further files by name, written beside the picture.
    """

    name: str
    title: str
    summary: str
    facts: str
    figure: Figure
    caption: str
    verdicts: list[Verdict]
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def paper(self) -> str:
        """The number of the paper whose claims it judges."""
        return paper_of(self.name)

    @cached_property
    def png(self) -> bytes:
        """The figure, drawn once: that is most of the price of a page."""
        buffer = io.BytesIO()
        tidy_log_axes(self.figure)
        self.figure.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()

    def write(self, directory: Path) -> Path:
        """figure.png, verdicts.csv and the page's own files under directory/name; that folder."""
        folder = directory / self.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "figure.png").write_bytes(self.png)
        table(self.verdicts).to_csv(folder / "verdicts.csv", index=False)
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return folder


def write_markdown(path: Path, title: str, pages: list[Page]) -> Path:
    """The verdicts alone, as Markdown."""
    lines = [f"# {title}", ""]
    for page in pages:
        of_paper = "" if page.paper == "own" else f"Paper {page.paper} · "
        lines += [f"## {of_paper}{page.title}", "", page.summary, "", f"*{page.facts}*", ""]
        lines += [
            "| claim | where printed | measured | verdict | why | what the word is worth |",
            "|---|---|---|---|---|---|",
        ]
        for v in page.verdicts:
            cells = [v.claim, v.printed, v.measured, f"**{v.verdict}**", v.why, v.worth]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
