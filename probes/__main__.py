"""The command line: `probes measure RUN -o table.parquet`, `events`, `audit`, `report`, `watch`, `list`, `cache`.

What a command needs is imported when it runs: help, `list` and a misspelt command answer without torch.
"""

from probes.interrupted import say_stopped  # noqa: F401 (before what takes long to import)

# isort: split
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from probes.opening import (
    Alpha,
    Config,
    Controls,
    DetectIn,
    FamilyName,
    Heads,
    KvHeads,
    Metrics,
    Revisions,
    Source,
    Steps,
    Tables,
    TheoryName,
    failed,
    function_named,
    listed_circuits,
    opened,
    reference,
    served,
    stretch,
)

app = typer.Typer(
    name="probes",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="When did what happen inside a training run, and how sure are we?",
)


@app.callback()
def main() -> None:
    """When did what happen inside a training run, and how sure are we?"""


@app.command()
def audit(
    source: Source,
    revisions: Revisions = None,
    heads: Heads = None,
    kv_heads: KvHeads = None,
    config: Config = None,
    family: FamilyName = None,
    steps: Steps = None,
    metrics: Metrics = None,
    tensors: Annotated[
        str | None, typer.Option(help="'all' or 'attention'; attention alone is the default on a hub.")
    ] = None,
    hashes_only: Annotated[
        bool, typer.Option("--hashes-only", help="Compare the hashes that a hub or store lists; read no weights.")
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the verdicts to this CSV file.")] = None,
) -> None:
    """Say of every step whether its weights can be those of that step.

    Exit code: 0 if every step is sound, 1 if something was found, 2 if the run cannot be opened.
    """
    from checkpoints.audit import audit as audited
    from checkpoints.audit import audit_hashes
    from checkpoints.layout import remove_left_overs, write_text

    if tensors not in (None, "all", "attention"):
        raise typer.BadParameter(f"{tensors!r}: 'all' or 'attention' is expected", param_hint="--tensors")
    if tensors and hashes_only:
        raise typer.BadParameter("it reads no tensors", param_hint="--hashes-only")
    run = opened(source, revisions, heads, kv_heads, config, family, steps, metrics)
    try:
        found = audit_hashes(run, progress=True) if hashes_only else audited(run, tensors=tensors, progress=True)
        if output is not None:
            remove_left_overs(output)
            write_text(output, found.table.to_csv(index=False))
    except (OSError, ValueError) as error:
        raise failed(error) from error
    typer.echo(str(found))
    raise typer.Exit(0 if found.is_sound else 1)


@app.command()
def measure(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="The table: a .parquet file.", show_default=False)],
    circuits: Annotated[
        str | None, typer.Option(help="Names, comma-separated (see `probes list`); ov,qk if not given.")
    ] = None,
    only: Annotated[
        str | None, typer.Option("--probes", help="Names, comma-separated; all of `probes list` if not given.")
    ] = None,
    references: Annotated[
        str, typer.Option(help="What distances are measured against: final, steps, fractions of the last step.")
    ] = "final",
    drift_over: Annotated[
        str | None,
        typer.Option(
            help="What drift is measured over: 'previous', steps (250), ratios (1.2), comma-separated; what fits the "
            "schedule if not given."
        ),
    ] = None,
    removed: Annotated[int, typer.Option(min=0, help="Largest k of the marginalized effective rank.")] = 4,
    engine: Annotated[str, typer.Option(help="serial, processes, processes:N or dask://host:port.")] = "serial",
    audited: Annotated[
        bool, typer.Option("--audit/--no-audit", help="Leave out steps whose weights cannot be theirs.")
    ] = True,
    revisions: Revisions = None,
    heads: Heads = None,
    kv_heads: KvHeads = None,
    config: Config = None,
    family: FamilyName = None,
    steps: Steps = None,
    metrics: Metrics = None,
) -> None:
    """Measure every checkpoint of a run: one tidy table, one row per number.

    Results are kept beside the output as they come (OUTPUT.parts/). If the job is killed, the same command again goes
    on where it stopped. Exit code: 0, 1 if some checkpoints could not be read or measured, 2 if nothing was.
    """
    from checkpoints.layout import remove_left_overs
    from probes.measuring.engines import engine_named
    from probes.measuring.measure import measure as measured
    from probes.measuring.outcome import outcome
    from probes.measuring.partial_results import remove_partial_results
    from probes.measuring.tables import write_table

    run = opened(source, revisions, heads, kv_heads, config, family, steps, metrics)
    parts = output.with_name(output.name + ".parts")
    try:
        if output.suffix != ".parquet" or output.is_dir():
            raise ValueError(f"--output {output}: the name of a .parquet file is expected")
        table = measured(
            run,
            [name.strip() for name in circuits.split(",")] if circuits else None,
            probes=[name.strip() for name in only.split(",")] if only else None,
            references=[reference(text.strip()) for text in references.split(",")],
            drift_over=[stretch(text.strip()) for text in drift_over.split(",")] if drift_over else None,
            removed=removed,
            audit=audited,
            engine=engine_named(engine),
            resume_dir=parts,
            progress=True,
        )
        remove_left_overs(output)
        write_table(table, output)
    except (OSError, ValueError, ImportError) as error:
        raise failed(error) from error
    except KeyboardInterrupt:
        typer.echo(
            f"stopped. What was measured is kept in {parts}: the same command again goes on from there", err=True
        )
        raise typer.Exit(130) from None
    if not table.attrs["failed"]:
        remove_partial_results(parts)
    told, problems = outcome(table, source)
    for line in [f"{output}: {told[0]}", *told[1:]]:
        typer.echo(line)
    for line in problems:
        typer.echo(line, err=True)
    if problems:
        raise typer.Exit(1)


@app.command()
def events(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Runs, or tables that `probes measure` wrote.", show_default=False),
    ],
    controls: Controls = None,
    circuits: Annotated[
        str | None, typer.Option(help="Names, comma-separated; ov,qk and small embeddings and MLPs if not given.")
    ] = None,
    detect_in: DetectIn = None,
    alpha: Alpha = 0.01,
    tables: Tables = Path("tables"),
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write what is printed to this file.", show_default=False)
    ] = None,
    revisions: Revisions = None,
    heads: Heads = None,
    kv_heads: KvHeads = None,
    config: Config = None,
    family: FamilyName = None,
    steps: Steps = None,
    metrics: Metrics = None,
) -> None:
    """Say what happened in runs: when, in which heads, together with what, how sure that is, and where it could look.

    Runs are measured first where need be; a killed command goes on where it stopped. What controls do too is told from
    what sets the runs apart. --heads, --steps ... hold for all. Exit code: 0, or 2 if there was nothing to look at.
    """
    from probes.events import command
    from probes.events.answer import answer, answer_apart

    if metrics and len(sources) + len(controls or []) > 1:
        raise typer.BadParameter("one log cannot be that of several runs: give one run", param_hint="--metrics")
    given = command.Given(
        lambda source: opened(source, revisions, heads, kv_heads, config, family, steps, metrics),
        tables,
        circuits=[name.strip() for name in circuits.split(",")] if circuits else None,
        metrics=[name.strip() for name in detect_in.split(",")] if detect_in else None,
    )
    try:
        found, apart = command.events_of(sources, controls or [], given, alpha=alpha)
        text = command.as_json(found, apart) if as_json else answer(found) + answer_apart(apart)
        if output is not None:
            output.write_text(text, encoding="utf-8")
    except (OSError, ValueError, ImportError) as error:
        raise failed(error) from error
    typer.echo(text if output is None else f"{output}: {len(found)} events")
    if not any(found.attrs["tests"].values()):
        raise typer.Exit(2)


@app.command()
def report(
    sources: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs; the first is shown in full.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("report.html"),
    controls: Controls = None,
    detect_in: DetectIn = None,
    alpha: Alpha = 0.01,
    tables: Tables = Path("tables"),
    theory: TheoryName = None,
    revisions: Revisions = None,
    heads: Heads = None,
    kv_heads: KvHeads = None,
    config: Config = None,
    family: FamilyName = None,
    steps: Steps = None,
    metrics: Metrics = None,
) -> None:
    """Write one HTML page on a run, to be forwarded: what happened, when, in which heads, how sure, what was not seen.

    Audits, measures and searches first; a killed command goes on where it stopped. The page needs no network.
    """
    from probes.reporting.report import report as reported

    said = (revisions, heads, kv_heads, config, family, steps, metrics)
    runs = {source: opened(source, *said) for source in [*sources, *(controls or [])]}
    try:
        place = reported(
            [runs[source] for source in sources],
            path=output,
            controls=[runs[source] for source in controls or []],
            metrics=[name.strip() for name in detect_in.split(",")] if detect_in else None,
            alpha=alpha,
            theory=function_named(theory) if theory else None,
            tables=tables,
            command=shlex.join(["probes", *sys.argv[1:]]),
            say=lambda text: typer.echo(text, err=True),
            progress=True,
        )
    except (OSError, ValueError, ImportError) as error:
        raise failed(error) from error
    except KeyboardInterrupt:
        typer.echo(f"stopped. What is done is kept in {tables}: the same command again goes on from there", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"{place}: {place.stat().st_size / 1e6:.1f} MB, opens in any browser")


@app.command()
def watch(
    source: Annotated[
        str, typer.Argument(metavar="RUN", help="A run on this disk, which may not be there yet.", show_default=False)
    ],
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between looks at the disk.")] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one view and exit; so it is when this is not a terminal.")
    ] = False,
    measured: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Measure the newest checkpoint where no monitor does.")
    ] = True,
    linear: Annotated[bool, typer.Option("--linear", help="Draw the loss over linear steps.")] = False,
    html: Annotated[
        bool, typer.Option("--html", help="Serve the report of the run so far to a browser on this machine.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of --html; any that is free if not given.")] = 0,
) -> None:
    """Look at a run while somebody else writes it: how far, how well, what is inside, what happened. Ctrl-C to leave.

    It only reads, and of every file only what is new. Exit code: 2 with --once if there is nothing to be seen.
    """
    from rich.console import Console

    from probes.watch import once as looked_at
    from probes.watch import view
    from probes.watch import watch as watched

    if source.startswith("hub:") or "://" in source:
        raise failed(ValueError(f"{source} is elsewhere: watch is for runs on this disk"))
    console = Console(highlight=False)
    if html and once:
        raise typer.BadParameter("it stays, and --once does not", param_hint="--html")
    if html or (console.is_terminal and not once):
        with served(source, port, shlex.join(["probes", *sys.argv[1:]])) if html else nullcontext() as page:
            if page is not None:
                typer.echo(f"{page.address} shows the report of the run so far. Ctrl-C to leave")
            watched(source, console, interval=interval, measures=measured, log_steps=not linear, page=page)
        return
    try:
        console.print(view(looked_at(source, measures=measured), log_steps=not linear))
    except (OSError, ValueError) as error:
        raise failed(error) from error


@app.command("list")
def list_() -> None:
    """What can be measured: the probes and circuits."""
    from probes.measuring.catalogue import PROBES

    typer.echo("Probes (what they read; definition; citation):")
    for probe in PROBES.values():
        typer.echo(f"  {probe.name:<28} {probe.reads:<18} {probe.meaning}")
    typer.echo("Circuits:")
    typer.echo(listed_circuits())


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Empty it.")] = False,
) -> None:
    """Where files from the hub and from stores are kept, and how large that is."""
    from checkpoints.hub import Hub

    hub = Hub()
    size = sum(path.stat().st_size for path in hub.cache.rglob("*") if path.is_file())
    typer.echo(f"{hub.cache}: {size / 1e6:.1f} MB, kept below {hub.limit / 1e9:.0f} GB")
    if clear:
        typer.echo(f"freed {hub.clear() / 1e6:.1f} MB")


if __name__ == "__main__":
    app()
