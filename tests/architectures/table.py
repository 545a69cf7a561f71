"""The verdicts as the table of docs/architectures.md."""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from transformers.utils import logging

from tests.architectures.build import build
from tests.architectures.models import MODELS
from tests.architectures.verdict import Verdict, judge

DOCUMENT = Path(__file__).parents[2] / "docs" / "architectures.md"

HEADER = """# Architectures

What `checkpoints.open_run(...).heads` reads of each architecture of Transformers, beside what the model itself does.
Every row is a tiny model built from its config, saved with `save_pretrained`, and read back. The truth is functional:
unit vectors go through the model's own attention modules, in which attention is made the identity, so that what head h
writes is its OV, and the queries and keys that it makes give its QK. The error is the largest difference, of the
largest entry. Norms inside attention and gates are taken as 1; the scale of the scores is left out. A row is *exact*
(below 1e-5), *partly* read (the rest is named), *refused* (with what the library says) or WRONG.

`python -m tests.architectures` writes this file; `tests/test_architectures.py` holds it to the code.

"""


def verdicts(names: Iterable[str]) -> Iterator[Verdict]:
    """The verdicts of rows of `MODELS`, or of model types that are not among them."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    for name in names:
        yield verdict(name, MODELS.get(name, {}))


def verdict(name: str, settings: dict[str, Any]) -> Verdict:
    """The verdict of one model, built and saved for it."""
    try:
        model = build(name.split(",")[0], **settings)
    except Exception as error:  # a config with a demand that `shrink` does not meet
        return Verdict(name, "not built", reason=" ".join(f"{type(error).__name__}: {error}".split())[:160])
    with tempfile.TemporaryDirectory() as folder:
        return judge(name, model, Path(folder))


def markdown(rows: list[Verdict]) -> str:
    """The document."""
    counts = Counter(row.status for row in rows)
    told = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    lines = [f"{len(rows)} models: {told}.", "", "| architecture | verdict | towers | circuits | error or reason |"]
    lines += ["|---|---|---|---|---|"]
    lines += [row(verdict) for verdict in rows]
    return HEADER + "\n".join(lines) + "\n"


def row(verdict: Verdict) -> str:
    """One line of the table."""
    cells = (verdict.architecture, verdict.status, verdict.towers, verdict.circuits, verdict.last.replace("|", "/"))
    return f"| {' | '.join(cells)} |"
