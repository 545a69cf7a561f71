"""A page: a picture, what it shows, and a table of verdicts, as one HTML file that opens anywhere."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from jinja2 import Environment
from matplotlib.figure import Figure

from analyses.registry import PAPERS, paper_of
from analyses.tools.draw import tidy_log_axes
from analyses.tools.verdicts import Verdict, table

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1 { font-size: 1.6rem } img { width: 100%; height: auto; border: 1px solid #ddd }
table { border-collapse: collapse; margin: 1rem 0 2rem; font-size: .9rem }
th, td { border: 1px solid #ccc; padding: .4rem .6rem; text-align: left; vertical-align: top }
th { background: #f3f3f3 } .holds { color: #17692b } .part { color: #8a5a00 } .fails { color: #a11 }
td.verdict { font-weight: 600; white-space: nowrap } .facts { color: #555 }
"""

_PAGE = Environment(autoescape=True).from_string("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{ title }}</title><style>{{ style | safe }}</style></head><body>
<h1>{{ title }}</h1>
{% for number, group in pages | groupby("paper") %}{% set paper = papers[number] %}
<p>{% if number == "own" %}What this project promises of itself, judged. {% else %}Claims of {{ paper.authors }},
<em>{{ paper.title }}</em>, each trained again from scratch and judged. Numbers are means and standard deviations over
seeds. {% endif %}{{ paper.note }}</p>
{% for page in group %}
{% if pages | length > 1 %}<h2 id="{{ page.name }}">{{ page.title }}</h2>{% endif %}
<p>{{ page.summary }}</p>
<p class="facts">{{ page.facts }}</p>
<img alt="{{ page.title }}" src="data:image/png;base64,{{ page.picture }}">
<p>{{ page.caption }}</p>
<table><tr><th>claim</th><th>where printed</th><th>measured</th><th>verdict</th><th>why</th><th>what the word is worth</th></tr>
{% for v in page.verdicts %}<tr><td>{{ v.claim }}</td><td>{{ v.printed }}</td><td>{{ v.measured }}</td>
<td class="verdict {{ 'holds' if v.verdict == 'holds' else 'part' if 'part' in v.verdict else 'fails' }}">{{ v.verdict }}</td>
<td>{{ v.why }}</td><td>{{ v.worth }}</td></tr>
{% endfor %}</table>
{% endfor %}
{% endfor %}
</body></html>
""")


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

    @property
    def picture(self) -> str:
        """The figure as base64 PNG."""
        return base64.b64encode(self.png).decode()

    def write(self, directory: Path) -> Path:
        """figure.png, verdicts.csv, index.html and the page's own files under directory/name; the HTML file."""
        folder = directory / self.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "figure.png").write_bytes(self.png)
        table(self.verdicts).to_csv(folder / "verdicts.csv", index=False)
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return write_html(folder / "index.html", self.title, [self])


def write_html(path: Path, title: str, pages: list[Page]) -> Path:
    """One or several pages in one self-contained file."""
    path.write_text(_PAGE.render(title=title, pages=pages, papers=PAPERS, style=_STYLE), encoding="utf-8")
    return path


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
