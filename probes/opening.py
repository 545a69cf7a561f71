"""How the commands open a run: the options that say what no config says, the same for `measure` and `audit`.

And what else they make of their options: references, stretches, theories; what `list` lists
and the page that `watch --html` serves.
"""

import ast
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from checkpoints import Run
    from probes.watch import ServedPage

Source = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run directory, Trainer output, a folder of steps, a checkpoint, or hub:owner/name.",
        show_default=False,
    ),
]
Controls = Annotated[
    list[str] | None,
    typer.Option("--controls", metavar="RUN", help="A run in which it does not happen; may be given repeatedly."),
]
DetectIn = Annotated[
    str | None,
    typer.Option(help="Which logged metrics are searched, comma-separated; all if not given.", show_default=False),
]
Alpha = Annotated[float, typer.Option(help="Share of the events that may be false.")]
Tables = Annotated[Path, typer.Option(help="Where measured tables are kept, to be used again.")]
TheoryName = Annotated[
    str | None,
    typer.Option(
        "--theory",
        metavar="MODULE:FUNCTION",
        help="What gives the theory of a run, to be laid over it; of the solvable models of this repository "
        "models.theories:theory_of.",
        show_default=False,
    ),
]
Revisions = Annotated[
    str | None,
    typer.Option(help="Which revisions of a hub, or folders, e.g. 'step*' or 'stage1-*'.", show_default=False),
]
Steps = Annotated[
    str | None,
    typer.Option(help="Where the step stands in the names, e.g. 'model_{step}.pth', or a regex.", show_default=False),
]
Metrics = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="What was logged: a CSV, JSONL, parquet or event file.", show_default=False),
]
Heads = Annotated[
    int | None, typer.Option(help="How many attention heads a layer has, where no config says so.", show_default=False)
]
KvHeads = Annotated[int | None, typer.Option(help="How many key and value heads they share.", show_default=False)]
Config = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="What a config says or should say; again for more, dots for keys within keys.",
        show_default=False,
    ),
]
FamilyName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="How attention weights are stored: a known family, or a .toml or .json file that describes one.",
        show_default=False,
    ),
]


def opened(
    source: str,
    revisions: str | None,
    heads: int | None,
    kv_heads: int | None = None,
    config: list[str] | None = None,
    family: str | None = None,
    steps: str | None = None,
    metrics: str | None = None,
) -> "Run":
    """The run, or the reason why not and exit code 2."""
    from checkpoints import open_run
    from checkpoints.heads.described import family_from

    try:
        given = settings(config or [])
        given |= {"num_attention_heads": heads} if heads else {}
        given |= {"num_key_value_heads": kv_heads} if kv_heads else {}
        described = family_from(family) if family else None
        run = open_run(
            source, revisions=revisions, config=given or None, family=described, steps=steps, metrics=metrics
        )
    except (OSError, ValueError, ImportError) as error:
        raise failed(error) from error
    if not run.steps:
        raise failed(ValueError(f"{source} has no checkpoints yet"))
    return run


def settings(given: list[str]) -> dict[str, Any]:
    """KEY=VALUE as a config: values are JSON where they can be, text where not."""
    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip(". "):
            raise ValueError(f"--config {text!r}: KEY=VALUE is expected, such as num_attention_heads=12")
        *outer, last = key.strip().split(".")
        place = found
        for step in outer:
            place = place.setdefault(step, {})
        try:
            place[last] = json.loads(value)
        except ValueError:
            place[last] = value
    return found


def failed(error: Exception) -> typer.Exit:
    """Say what is wrong, in one line; exit code 2."""
    typer.echo(f"error: {error}".encode("utf-8", "backslashreplace"), err=True)  # names of files may be no text
    return typer.Exit(2)


def reference(text: str) -> "str | int | float":
    """What --references says, as `measure` takes it."""
    if text == "final" or text.isdecimal():
        return text if text == "final" else int(text)
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--references {text!r}: 'final', a step or a fraction of the last step is expected") from None


def stretch(text: str) -> "str | int | float":
    """What --drift-over says, as `measure` takes it."""
    if text == "previous" or text.isdecimal():
        return text if text == "previous" else int(text)
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"--drift-over {text!r}: 'previous', a number of steps or a ratio above 1 is expected"
        ) from None


def function_named(text: str) -> "Callable[[Run], Any]":
    """What --theory says: a function of a module that can be imported from here."""
    module, colon, name = text.partition(":")
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    try:
        found = getattr(importlib.import_module(module), name, None) if colon else None
    except ImportError as error:
        raise ValueError(f"--theory {text}: {module} cannot be imported: {error}") from None
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise ValueError(f"--theory {text}: MODULE:FUNCTION is expected, and there is no such function")
    return found


def listed_circuits() -> str:
    """The table in the docstring of `probes.circuits`, read from its source: importing it would import torch."""
    spec = importlib.util.find_spec("probes.circuits")
    assert spec is not None
    assert spec.origin is not None
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return "\n".join(line[2:] for line in text.splitlines() if line.startswith("    "))


@contextmanager
def served(source: str, port: int, command: str) -> "Iterator[ServedPage]":
    """A server of the report of a run, with a folder for the page and what it is made of that goes with it."""
    import tempfile

    from probes.reporting.report import report as reported
    from probes.watch import ServedPage

    with tempfile.TemporaryDirectory(prefix="probes-watch-") as folder:
        tables = Path(folder) / "tables"
        try:
            yield ServedPage(
                lambda path: reported(source, path=path, tables=tables, command=command), Path(folder), port=port
            )
        except OSError as error:
            raise failed(error) from error
