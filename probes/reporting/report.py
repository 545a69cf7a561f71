"""`probes.report(run)`: one command on a folder of checkpoints, one page to forward.

How data flows, one file each:

    job             a run: audited, measured, its spectra, its metrics; kept, resumed              -> Looked
    (events)        tables and metrics of all runs and controls                                    -> events
    collect         Looked + events; with event_data, series_data, small_figures, nulls, packing   -> Page (page_data)
    comparison_data several runs and controls: own events, what recurs, what differs               -> Page
    loss_svg        the loss as a still picture; compare_svg: those of several runs                -> SVG
    bokeh_document  empty figures with named models, the same for every page                       -> JSON
    page            template, style sheet, app, Bokeh's own bundle, Content-Security-Policy        -> one HTML file
    app/*.js        in the browser: unpacks Page's JSON and fills the named models

All numbers are in `Page`: the template writes its words, the app draws the rest of it. The same Page gives the same
bytes.
"""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from checkpoints import Run, open_run
from checkpoints.layout import write_text
from probes.events.answer import sentences
from probes.events.compare import set_apart
from probes.events.find import find_events
from probes.measuring.kept_tables import Say, silent
from probes.reporting.collect import page_of
from probes.reporting.compare_svg import compare_svgs
from probes.reporting.job import Looked, look_at
from probes.reporting.page import render
from probes.series.logged import chosen_metrics
from probes.theory import Alignment, Theory, align

Source = Run | str | Path


def report(
    run: Source | Sequence[Source],
    table: pd.DataFrame | None = None,
    events: pd.DataFrame | None = None,
    path: str | Path = "report.html",
    *,
    controls: Source | Sequence[Source] = (),
    theory: Theory | Alignment | Callable[[Run], Theory] | None = None,
    metrics: Sequence[str] | None = None,
    alpha: float = 0.01,
    tables: str | Path | None = None,
    command: str = "probes.report(...)",
    say: Say = silent,
    progress: bool = False,
) -> Path:
    """Write one self-contained HTML page on a run: what happened, when, in which heads, how sure, what was not seen.

        probes.report("runs/mine")                                    audits, measures, searches, writes report.html
        probes.report(run, table, events, "mine.html")                uses what is there already

    run may be several, the first of which is shown in full; controls are runs in which it does not happen. table and
    events belong to the (single) run. theory, or a function that gives one for a run, is laid over the first run
    (`probes.align`). metrics names which of the logged metrics are searched. tables is a folder for what is measured,
    to be used again by the next call.
    """
    sources = [run] if isinstance(run, Run | str | Path) else list(run)
    others = [controls] if isinstance(controls, Run | str | Path) else list(controls)
    if (table is not None or events is not None) and len(sources) > 1:
        raise ValueError(f"a table or events are given with {len(sources)} runs: they belong to one run")
    if not sources:
        raise ValueError("no run is given")
    _require_libraries()
    kept = Path(tables) if tables is not None else None
    opened = [one if isinstance(one, Run) else open_run(one) for one in [*sources, *others]]
    _refuse_twice([one.name for one in opened])
    looked = [
        look_at(
            one,
            table=table if number == 0 else None,
            tables=kept,
            spectra=number == 0,
            say=say,
            progress=progress,
        )
        for number, one in enumerate(opened)
    ]
    runs, against = looked[: len(sources)], looked[len(sources) :]
    apart: pd.DataFrame | str = "The events were given: what sets runs apart was not searched." if against else ""
    if events is None:
        say("searching for events")
        events, apart = _searched(runs, against, metrics, alpha)
        for line in _told(events):
            say(line)
    alignment, not_aligned = _aligned(runs[0], theory)
    page = page_of(
        runs,
        against,
        events,
        alignment=alignment,
        not_aligned=not_aligned,
        command=command,
        alpha=alpha,
        apart=apart,
    )
    place = Path(path)
    logged = [(one.metrics, data) for one, data in zip(runs, page.runs, strict=True)]
    write_text(place, render(page, logged, compare_svgs(page.comparison, runs, against)))
    return place


def _require_libraries() -> None:
    """Before any work."""
    lacking = [name for name in ("bokeh", "jinja2", "matplotlib") if importlib.util.find_spec(name) is None]
    if lacking:
        raise ImportError(
            f"a report needs {' and '.join(lacking)}, which is not installed: pip install 'checkpoint-probes[report]'"
        )


def _refuse_twice(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise ValueError(f"two runs are called {', '.join(twice)}: each may stand once, under a name of its own")


def _searched(
    runs: Sequence[Looked], controls: Sequence[Looked], wanted: Sequence[str] | None, alpha: float
) -> tuple[pd.DataFrame | None, pd.DataFrame | str]:
    """Events of all runs that have a table, None where none has one; what sets them apart, or why it is not said."""
    tables = [one.table for one in runs if one.table is not None]
    against = [one.table for one in controls if one.table is not None]
    if not tables:
        return None, ""
    logged = {
        one.name: chosen_metrics(one.metrics, wanted)
        for one in [*runs, *controls]
        if one.metrics is not None and one.table is not None
    }
    events = find_events(tables, logged or None, controls=against or None, alpha=alpha)
    return events, _apart(tables, against)


def _told(events: pd.DataFrame | None) -> list[str]:
    """What was found, in the words of the page."""
    if events is None:
        return ["no events were searched: nothing could be measured"]
    several = len(set(events["run"])) > 1
    found = [f"{events.at[n, 'run']}: {said}" if several else said for n, said in sentences(events).items()]
    return found or ["no event was found; the page says where it could look"]


def _apart(tables: Sequence[pd.DataFrame], controls: Sequence[pd.DataFrame]) -> pd.DataFrame | str:
    if not controls:
        return ""
    if len(tables) < 2 or len(controls) < 2:
        return (
            f"Two or more of each are needed to tell what sets runs apart: {len(tables)} against {len(controls)} here."
        )
    try:
        return set_apart(tables, controls)
    except ValueError as error:
        return f"What sets them apart cannot be told: {error}."


def _aligned(
    looked: Looked, theory: Theory | Alignment | Callable[[Run], Theory] | None
) -> tuple[Alignment | None, str]:
    """The theory laid over the run; or none, and why not where one was asked for."""
    if theory is None or isinstance(theory, Alignment):
        return theory, ""
    if looked.run is None:
        raise ValueError("theory is given without the run that it is laid over")
    try:
        return align(looked.run, theory if isinstance(theory, Theory) else theory(looked.run)), ""
    except ValueError as error:
        return None, str(error)
