"""`python -m analyses [NAME ...]`: redraw the figures and judge the claims; without a name, all of them.

What was drawn stands in one gallery, `results/index.html`, beside what was drawn there before and, for pages that were
not, their committed verdicts.
"""

import importlib
import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from analyses.gallery.entries import gathered, keep, of_page
from analyses.gallery.render import write_gallery
from analyses.gallery.reports import write_reports
from analyses.registry import FROM_ELSEWHERE, GROUPS, PAPERS, SIZES, chosen_pages, description, module_of, whole_groups
from analyses.tools.coverage import has_places, write_coverage
from analyses.tools.page import Page, write_markdown

_HELP = "Redraw the figures of the papers and judge each claim. The groups and their pages:\n\n" + "\n\n".join(
    f"\b\n{name} ({'our own promises' if group.paper == 'own' else f'paper {group.paper}'})\n"
    + "\n".join(f"  {page:<21} {line}" for page, line in group.pages.items())
    for name, group in GROUPS.items()
)  # \b: click leaves the lines of this paragraph as they are

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(help=_HELP)
def main(
    names: Annotated[list[str] | None, typer.Argument(help="Pages or groups of them; all if none is named.")] = None,
    paper: Annotated[list[str] | None, typer.Option(help=f"All pages on a paper: {', '.join(PAPERS)}.")] = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="toy (seconds a page), quick (the linear head two minutes in all, icl_emergence eight, grokking and live_monitor four each, "
            "each other paper two or three, calibration ten), paper (ten minutes for the linear head, longer for the rest). Quick, if not said."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the pages go.")] = Path("results"),
    runs: Annotated[Path, typer.Option(help="Where the runs behind them are kept.")] = Path("checkpoints/runs"),
    verdicts: Annotated[Path | None, typer.Option(help="Also write all verdicts to this Markdown file.")] = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="Where published_models finds its models: hub (gigabytes are fetched), a folder with copies, or a server. "
            "Without it nothing is fetched, and the page says that it waits."
        ),
    ] = None,
    reports: Annotated[
        bool, typer.Option("--reports/--no-reports", help="Also a report on one run of each page; never at size toy.")
    ] = True,
    committed: Annotated[
        bool,
        typer.Option(
            "--committed",
            help="Each group at the size of its committed verdicts, which are written anew.",
        ),
    ] = False,
) -> None:
    """Run pages one after another, saying what happens."""
    try:
        pages = chosen_pages(names or (), paper or ())
        groups = whole_groups(pages) if committed else []
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if committed and (size or verdicts):
        raise typer.BadParameter(
            "--committed decides the size and where the verdicts go: leave --size and --verdicts out"
        )
    if source and not set(pages) & set(FROM_ELSEWHERE):
        raise typer.BadParameter(f"only {', '.join(FROM_ELSEWHERE)} has a use for it", param_hint="--source")
    if size and size not in SIZES:
        raise typer.BadParameter(f"{size!r}: one of {', '.join(SIZES)} is expected", param_hint="--size")
    for name in groups:
        typer.echo(f"Group {name}, size {GROUPS[name].size}")
        made = list(GROUPS[name].pages)
        draw(made, GROUPS[name].size, out, runs, GROUPS[name].verdicts_file, reports=reports, source=source)
        for file, path in GROUPS[name].ships.items():
            made_file = next(out / page / file for page in made if (out / page / file).exists())
            shutil.copyfile(made_file, Path(__file__).parents[1] / path)
        if has_places(GROUPS[name].paper):
            write_coverage(GROUPS[name].paper)
    if not committed:
        draw(pages, size or "quick", out, runs, verdicts, reports=reports, source=source)
    typer.echo(f"The gallery: {show(out).resolve()}")


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
) -> None:
    """Run pages, each into its folder, and, if asked for, write one file of their verdicts and reports on their runs.

    source is for pages on models that were trained elsewhere.
    """
    if size == "toy":
        typer.echo("Size toy only shows that everything runs: two seeds, small batches. Its verdicts mean nothing.")
    pages = []
    for i, name in enumerate(names, start=1):
        typer.echo(f"[{i}/{len(names)}] {name}: {description(name)} ...")
        start = time.perf_counter()
        more = {"source": source} if name in FROM_ELSEWHERE else {}
        page: Page = importlib.import_module(module_of(name)).run(size, runs, **more)
        pages.append(page)
        folder = page.write(out)
        keep(page, size, out)
        path = write_gallery(folder / "index.html", page.title, [of_page(page, size)])
        typer.echo(f"      {time.perf_counter() - start:.0f} s, {path}")
        for verdict in page.verdicts:
            typer.echo(f"      {verdict.verdict:>14}  {verdict.claim}")
    if reports and size != "toy":
        write_reports(names, size, runs, out, typer.echo)
    if verdicts:
        ours = all(page.paper == "own" for page in pages)
        title = "Our own promises: what holds" if ours else "Solvable models of in-context learning: what holds"
        write_markdown(verdicts, title + (" (toy size)" if size == "toy" else ""), pages)


if __name__ == "__main__":
    app()
