"""The command line: `probes audit RUN`."""

from pathlib import Path
from typing import Annotated

import typer

from checkpoints import Run, open_run

app = typer.Typer(
    name="probes",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="When did what happen inside a training run, and how sure are we?",
)

Source = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run directory, Trainer output, a folder of steps, a checkpoint, or hub:owner/name.",
        show_default=False,
    ),
]
Revisions = Annotated[
    str | None, typer.Option(help="For hub:owner/name: which revisions, e.g. 'step*'.", show_default=False)
]
Heads = Annotated[
    int | None, typer.Option(help="How many attention heads a layer has, where no config says so.", show_default=False)
]


@app.callback()
def main() -> None:
    """When did what happen inside a training run, and how sure are we?"""


@app.command()
def audit(
    source: Source,
    revisions: Revisions = None,
    heads: Heads = None,
    tensors: Annotated[
        str | None, typer.Option(help="'all' or 'attention'; attention alone is the default on a hub.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the verdicts to this CSV file.")] = None,
) -> None:
    """Say of every step whether its weights can be those of that step.

    Exit code: 0 if every step is sound, 1 if something was found, 2 if the run cannot be opened.
    """
    from checkpoints.audit import audit as audited

    if tensors not in (None, "all", "attention"):
        raise typer.BadParameter(f"{tensors!r}: 'all' or 'attention' is expected", param_hint="--tensors")
    run = opened(source, revisions, heads)
    try:
        found = audited(run, tensors=tensors, progress=True)
        if output is not None:
            found.table.to_csv(output, index=False)
    except (OSError, ValueError) as error:
        raise failed(error) from error
    typer.echo(str(found))
    raise typer.Exit(0 if found.is_sound else 1)


def opened(source: str, revisions: str | None, heads: int | None) -> Run:
    """The run, or the reason why not and exit code 2."""
    try:
        run = open_run(source, revisions=revisions, config={"num_attention_heads": heads} if heads else None)
    except (OSError, ValueError) as error:
        raise failed(error) from error
    if not run.steps:
        raise failed(ValueError(f"{source} has no checkpoints yet"))
    return run


def failed(error: Exception) -> typer.Exit:
    """Say what is wrong, in one line; exit code 2."""
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(2)


if __name__ == "__main__":
    app()
