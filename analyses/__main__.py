"""`python -m analyses [NAME ...]`: redraw the figures and judge the claims; without a name, all of them.

What was drawn stands in one gallery, `results/index.html`, beside what was drawn there before and, for pages that were
not, their committed verdicts.
"""

from pathlib import Path
from typing import Annotated

import typer

from analyses.drawing import draw, draw_by_group, show, write_committed
from analyses.registry import FROM_ELSEWHERE, GROUPS, PAPERS, SIZES, chosen_pages, whole_groups

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
            help="toy (seconds a page), quick (the linear head two minutes in all, icl_emergence twelve, grokking nine, live_monitor four, "
            "each other paper two to five, calibration ten), paper (ten minutes for the linear head, longer for the rest). Quick, if not said."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the pages go.")] = Path("results"),
    runs: Annotated[Path, typer.Option(help="Where the runs behind them are kept.")] = Path("checkpoints/runs"),
    verdicts: Annotated[Path | None, typer.Option(help="Also write all verdicts to this Markdown file.")] = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Train fresh seeds as well, where a page has them, and judge again on those. As --committed does.",
        ),
    ] = False,
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
    """Choose pages and run them, saying what happens."""
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
    if committed:
        write_committed(groups, out, runs, reports=reports, source=source)
    elif verdicts:  # one file in one order: one group after another
        draw(pages, size or "quick", out, runs, verdicts, reports=reports, source=source, fresh=fresh)
    else:
        draw_by_group(pages, size or "quick", out, runs, reports=reports, source=source, fresh=fresh)
    typer.echo(f"The gallery: {show(out).resolve()}")


if __name__ == "__main__":
    app()
