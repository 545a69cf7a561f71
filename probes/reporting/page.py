"""One HTML file from what the page knows: template, style sheet, app and Bokeh's bundle, all inside, nothing fetched.

Every script is named by its hash in the Content-Security-Policy, so that no other can run, whatever stands in a name;
nothing can be loaded or sent. Styles may be inline: Bokeh writes its own into the page.
"""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from probes.reporting.bokeh_document import bokeh_document, palettes
from probes.reporting.loss_svg import loss_svg
from probes.reporting.page_data import EventData, Page, RunData, as_json
from probes.series.logged import loss_name

_HERE = Path(__file__).parent
_APP = ("data", "state", "plots", "map", "curves", "grid", "modes", "compare", "csv", "main")
"""The files of the app, in the order in which they build on each other."""

_LONGEST = 160
"""Characters of a name in running text; the whole name stands in the facts of its run."""


def render(
    page: Page,
    logged: Sequence[tuple[pd.DataFrame | None, RunData]],
    compared: Sequence[tuple[str, str]] = (),
) -> str:
    """The page as HTML. logged are the metrics of each run, in the order of the page's runs; compared are pictures."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    bundle, app = _bokeh(), _app()
    drawn = [
        loss_svg(metrics, loss_name(metrics), run.events, run.step_unit, salt=str(number))
        for number, (metrics, run) in enumerate(logged)
    ]
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": _number, "share": _share, "q": _q, "short": short, "anchor": _anchor}
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {_hash(bundle)} {_hash(app)}; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("page.html.j2").render(
        page=page,
        main=page.runs[0],
        pictures=drawn,
        compared_pictures=compared,
        verdict=verdict_text(page),
        headlines=[counted(run) for run in page.runs],
        nulls={one.name: _nulls(page.runs[0], one.name) for one in page.definitions},
        policy=policy,
        style=style,
        bundle=bundle,
        app=app,
        data=as_json(page),
        figures=bokeh_document(len(page.runs[0].figures)),
        palettes=_colours(),
    )


def verdict_text(page: Page) -> str:
    """What the first strip says, as text to be pasted into a mail."""
    lines = []
    for run in page.runs:
        lines += [f"{run.name}: {counted(run)}. Audit: {run.audit}."]
        lines += [f"{event.number}. {event.sentence}{shared(event)}" for event in run.events]
        lines += ["Where it could look, and what was left out:", *(f"- {one}" for one in run.not_looked_at), ""]
    return "\n".join([*lines, page.apart, f"Made by: {page.command}"]).strip() + "\n"


def counted(run: RunData) -> str:
    """How many events; "nothing found" and "could not look" are told apart."""
    if not run.tests:
        return "could not look for events"
    if not run.events:
        return "nothing found"
    return f"{len(run.events)} event{'s' * (len(run.events) > 1)}"


def _nulls(run: RunData, probe: str) -> list[str]:
    """What chance would show of a probe, circuits of one shape together; of several components the first."""
    first = next((one for one in run.series if one.probe == probe and one.nulls), None)
    circuits: dict[str, list[str]] = {}
    for null in first.nulls if first is not None else ():
        circuits.setdefault(null.sentence, []).append(null.circuit)
    return [f"{', '.join(names)}: {sentence}" for sentence, names in circuits.items()]


def shared(event: EventData) -> str:
    """Whether controls do the same, where there are controls."""
    return "" if event.shared is None else " Shared with the controls." if event.shared else " Not in the controls."


def short(name: str) -> str:
    """A name that fits into a sentence."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _bokeh() -> str:
    """The bundle that the installed package of Bokeh ships."""
    import bokeh

    bundle = Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"
    text = bundle.read_text(encoding="utf-8")
    if "</script" in text.lower() or "<!--" in text:
        raise ValueError(f"{bundle} holds what would end a script element: another version of bokeh is needed")
    return text


def _app() -> str:
    parts = [(_HERE / "app" / f"{name}.js").read_text(encoding="utf-8") for name in _APP]
    return "(() => {\n" + "\n".join(parts) + "\n})();\n"


def _colours() -> str:
    import json

    return json.dumps(palettes(), separators=(",", ":"))


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _share(value: float) -> str:
    return "not measured" if value != value else f"{100 * value:.3g} %"


def _q(value: float) -> str:
    return f"{value:.1g}" if value >= 1e-6 else "≤ 1e-6"


def _anchor(name: str) -> str:
    """An id for the row of something in the page."""
    return f"c{hashlib.sha256(name.encode('utf-8')).hexdigest()[:10]}"
