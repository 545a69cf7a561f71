"""One self-contained HTML file of entries: no network, no code but its own, which its policy names by hash."""

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment
from latex2mathml.converter import convert
from markupsafe import Markup

from analyses.gallery.entries import Entry
from analyses.gallery.reports import FOLDER
from analyses.registry import PAPERS
from analyses.tools.verdicts import CANNOT, FAILS, HOLDS, IN_PART

HERE = Path(__file__).parent

KINDS = {HOLDS: "holds", IN_PART: "part", FAILS: "fails", CANNOT: "cannot"}
"""The verdicts in the order of the filter, and what each is called in the style."""

PLURAL = {"holds": "hold", "part": "hold in part", "fails": "do not hold", "cannot": "cannot be judged"}


def write_gallery(path: Path, title: str, entries: Sequence[Entry]) -> Path:
    """The page with these entries."""
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("gallery.css", "gallery.js"))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"mathml": mathml, "base64": lambda data: base64.b64encode(data).decode()}
    template = environment.from_string((HERE / "gallery.html").read_text(encoding="utf-8"))
    counts = Counter(verdict.verdict for entry in entries for verdict in entry.verdicts)
    by_paper = {number: [entry for entry in entries if entry.paper == number] for number in PAPERS}
    text = template.render(
        title=title,
        papers=[(number, PAPERS[number], some) for number, some in by_paper.items() if some],
        kinds=KINDS,
        plural=PLURAL,
        counts=counts,
        total=counts.total(),
        tally=", ".join(f"{counts[word]} {PLURAL[kind]}" for word, kind in KINDS.items()) + ".",
        several=len(entries) > 1,
        reports=FOLDER,
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
    )
    path.write_text(text, encoding="utf-8")
    return path


def policy(style: str, script: str) -> str:
    """Pictures in the file and these two pieces of it; nothing else is loaded or run."""
    return (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def mathml(latex: str, display: str = "inline") -> Markup:
    """A formula of our own, typeset; the namespace, an address, is not needed inside HTML."""
    return Markup(convert(latex, display=display).replace(' xmlns="http://www.w3.org/1998/Math/MathML"', ""))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
