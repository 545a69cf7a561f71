"""`python -m analyses [NAME ...]`: redraw the figures and judge the claims; without a name, all of them."""

import importlib
import time
from pathlib import Path
from typing import Annotated

import matplotlib
import typer

from analyses.page import write_html, write_markdown

ANALYSES = {
    "fixed_point": "Fig 1 of paper 000: where the parameters end up",
    "mode_trajectories": "Fig 2: how each mode grows, and what is conserved",
    "loss_plateaus": "Fig 3A: plateaus and cliffs of the loss",
    "timescale_separation": "Fig 4: what the probes see of it",
    "icl_emergence": "Figs 5 and 6: attention-only transformers that begin to learn in context",
    "grokking": "Figs 3B and 7: modular addition, understood long after it was learned by heart",
    "live_monitor": "the closing section: stages announced while they happen",
    "multi_head_plateaus": "Fig 1 of paper 001: plateaus, values and eigenvectors of several heads",
    "multi_head_ranks": "Figs 2, 7, 9: plateaus and the rank of keys and queries",
    "multi_head_variants": "Figs 3, 4, 5: softmax, initialisation, next-token loss",
    "multi_head_algorithm": "section 3.3: principal component regression in context",
    "merged_weights_flow": "Theorems 4.1 and 4.5 of paper 002: gradient flow and its limit",
    "merged_weights_errors": "Theorem 4.2: prediction error on new prompts",
    "merged_weights_shifts": "sections 4.2 and 4.3: task, query and covariate shift",
    "depth_isotropic": "Figs 1, 2 of paper 003: isotropic data, depth against context",
    "depth_whitening": "Fig 3: one fixed covariance, and its brittleness",
    "depth_time": "Figs 4, 6: rotated covariances, the laws of time and depth, full attention",
    "depth_width": "Fig 5: finite width and context, the best shape",
    "sparse_solution": "Fig 2 of paper 004: how many sparse tasks are learned",
    "sparse_scaling": "Figs 3, 4: scaling laws of time, size, data and compute",
}

SIZES = ("toy", "quick", "paper")

_HELP = "Redraw the figures of the papers and judge each claim.\n\n" + "\n\n".join(
    f"{k}: {v}." for k, v in ANALYSES.items()
)

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(help=_HELP)
def main(
    names: Annotated[list[str] | None, typer.Argument(help="Which; all if none is named.")] = None,
    size: Annotated[
        str,
        typer.Option(
            help="toy (seconds a page), quick (the linear head two minutes in all, icl_emergence eight, grokking and live_monitor four each, "
            "each other paper two or three), paper (ten minutes for the linear head, longer for the rest)."
        ),
    ] = "quick",
    out: Annotated[Path, typer.Option(help="Where the pages go.")] = Path("results"),
    runs: Annotated[Path, typer.Option(help="Where the runs behind them are kept.")] = Path("checkpoints/runs"),
    verdicts: Annotated[Path | None, typer.Option(help="Also write all verdicts to this Markdown file.")] = None,
) -> None:
    """Run analyses one after another, saying what happens."""
    matplotlib.use("Agg")
    chosen = names or list(ANALYSES)
    unknown = [name for name in chosen if name not in ANALYSES]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: known are {', '.join(ANALYSES)}", param_hint="NAMES")
    if size not in SIZES:
        raise typer.BadParameter(f"{size!r}: one of {', '.join(SIZES)} is expected", param_hint="--size")
    if size == "toy":
        typer.echo("Size toy only shows that everything runs: two seeds, small batches. Its verdicts mean nothing.")
    pages = []
    for i, name in enumerate(chosen, start=1):
        typer.echo(f"[{i}/{len(chosen)}] {name}: {ANALYSES[name]} ...")
        start = time.perf_counter()
        page = importlib.import_module(f"analyses.{name}").run(size, runs)
        pages.append(page)
        path = page.write(out)
        typer.echo(f"      {time.perf_counter() - start:.0f} s, {path}")
        for verdict in page.verdicts:
            typer.echo(f"      {verdict.verdict:>14}  {verdict.claim}")
    title = "Solvable models of in-context learning: what holds" + (" (toy size)" if size == "toy" else "")
    typer.echo(f"The report: {write_html(out / 'index.html', title, pages).resolve()}")
    if verdicts:
        write_markdown(verdicts, title, pages)


if __name__ == "__main__":
    app()
