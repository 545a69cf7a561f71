"""Pages are run here: those of a group one after another, and where whole groups are asked for, two groups at a time.

Most pages keep one core busy, and the pages of a group share runs; so two groups side by side, each on half of the
cores, are what leaves none idle.
"""

import importlib
import inspect
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from analyses.gallery.entries import gathered, keep, of_page
from analyses.gallery.render import write_gallery
from analyses.gallery.reports import write_reports
from analyses.registry import GROUP_OF, GROUPS, description, module_of
from analyses.tools.coverage import has_places, write_coverage
from analyses.tools.page import Page, write_markdown
from analyses.tools.side_by_side import two_at_a_time

DEAREST_FIRST = ("transformers", "calibration", "linear")
"""Groups that take long: begun last, one of them would keep everybody waiting."""


def show(out: Path) -> Path:
    """Write the gallery of all that was drawn under this folder."""
    return write_gallery(out / "index.html", "Solvable models of in-context learning: what holds", gathered(out))


def draw(
    names: list[str],
    size: str,
    out: Path,
    runs: Path,
    verdicts: Path | None = None,
    *,
    reports: bool,
    source: str | None = None,
    fresh: bool = False,
) -> None:
    """Run pages, each into its folder, and, if asked for, write one file of their verdicts and reports on their runs.

    source is for pages on models that were trained elsewhere, fresh for those that can be judged again on fresh seeds.
    """
    if size == "toy":
        typer.echo("Size toy only shows that everything runs: two seeds, small batches. Its verdicts mean nothing.")
    pages = []
    for i, name in enumerate(names, start=1):
        typer.echo(f"[{i}/{len(names)}] {name}: {description(name)} ...")
        start, worked = time.perf_counter(), _processor_seconds()
        page = _run(importlib.import_module(module_of(name)).run, size, runs, source=source, fresh=fresh)
        pages.append(page)
        folder = page.write(out)
        keep(page, size, out)
        path = write_gallery(folder / "index.html", page.title, [of_page(page, size)])
        taken = f"{time.perf_counter() - start:.0f} s, {_processor_seconds() - worked:.0f} s of processor time"
        typer.echo(f"      {name}: {taken}, {path}")
        for verdict in page.verdicts:
            typer.echo(f"      {verdict.verdict:>14}  {verdict.claim}")
    if reports and size != "toy":
        write_reports(names, size, runs, out, typer.echo)
    if verdicts:
        ours = all(page.paper == "own" for page in pages)
        title = "Our own promises: what holds" if ours else "Solvable models of in-context learning: what holds"
        write_markdown(verdicts, title + (" (toy size)" if size == "toy" else ""), pages)


def _run(page: Callable[..., Page], size: str, runs: Path, **more: object) -> Page:
    """Hand a page what it has a use for; one that has fresh seeds and was not asked for them says so."""
    taken = inspect.signature(page).parameters
    made = page(size, runs, **{name: value for name, value in more.items() if name in taken})
    alone = "fresh" in taken and not more["fresh"]
    return replace(made, facts=f"{made.facts}; judged on the first seeds alone") if alone else made


def draw_by_group(names: Sequence[str], size: str, out: Path, runs: Path, **how: Any) -> None:
    """`draw` for pages of several groups, two groups at a time."""
    pages = {group: [name for name in names if GROUP_OF[name] == group] for group in GROUPS}
    chosen = [group for group, some in pages.items() if some]
    two_at_a_time(partial(_draw_group, pages=pages, size=size, out=out, runs=runs, **how), _dearest_first(chosen))


def _draw_group(name: str, *, pages: dict[str, list[str]], **how: Any) -> None:
    draw(pages[name], **how)


def _dearest_first(groups: Sequence[str]) -> list[str]:
    return sorted(groups, key=lambda name: (*DEAREST_FIRST, name).index(name))


def write_committed(groups: Sequence[str], out: Path, runs: Path, *, reports: bool, source: str | None) -> None:
    """Groups at the size of their committed verdicts, which are written anew, and the tables of coverage after them."""
    work = partial(_write_group, out=out, runs=runs, reports=reports, source=source)
    try:
        two_at_a_time(work, _dearest_first(groups))
    finally:
        for paper in dict.fromkeys(GROUPS[name].paper for name in groups):
            if has_places(paper):
                write_coverage(paper)


def _write_group(name: str, *, out: Path, runs: Path, reports: bool, source: str | None) -> None:
    group = GROUPS[name]
    typer.echo(f"Group {name}, size {group.size}")
    draw(list(group.pages), group.size, out, runs, group.verdicts_file, reports=reports, source=source, fresh=True)
    for file, path in group.ships.items():
        made = next(out / page / file for page in group.pages if (out / page / file).exists())
        shutil.copyfile(made, Path(__file__).parents[1] / path)


def _processor_seconds() -> float:
    """Of this process and those it has started and that ended."""
    return sum(os.times()[:4])
