"""The job behind a page: audit, measure, spectra; each kept (`measuring.kept_tables`), so that a killed job goes on.

Tables are those of `probes events`, of the same circuits; NAME.spectra.parquet, beside them, holds leading singular
values and modes of the heads (`modes`).
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pandas as pd

from checkpoints import Run
from checkpoints.audit import Audit
from probes.events.searched_circuits import ROLES, circuits_to_search
from probes.measuring.kept_tables import KeptTables, Say, silent
from probes.reporting.modes import SPECTRA

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Looked:
    """What is known of one run before events are searched; what is None could not be had, and `problems` says why."""

    name: str
    run: Run | None
    audit: Audit | None
    table: pd.DataFrame | None
    spectra: pd.DataFrame | None
    metrics: pd.DataFrame | None
    problems: Sequence[str] = field(default_factory=tuple)


def look_at(
    run: Run,
    *,
    table: pd.DataFrame | None = None,
    tables: Path | None = None,
    spectra: bool = True,
    say: Say = silent,
    progress: bool = False,
) -> Looked:
    """Audit a run and measure it; what was given, or kept from before, is not done again.

    What cannot be done is no reason to give up the rest: it is said in `problems`.
    """
    problems: list[str] = list(run.notices)
    with _warnings_into(problems):
        return _looked(KeptTables(run, tables, say, progress), table, spectra, problems)


def _looked(kept: KeptTables, table: pd.DataFrame | None, spectra: bool, problems: list[str]) -> Looked:
    run = kept.run
    circuits: list[str] = []
    try:
        circuits, notes = circuits_to_search(run)
        problems += notes if table is None else []
    except (OSError, ValueError) as error:
        problems.append(f"Could not measure the probes: {error}")
    audit = kept.audit(circuits)
    if audit is None:
        problems.append("One checkpoint alone cannot be audited: there is none to compare it with.")
    elif run.steps and all(step in audit.condemned for step in run.steps):
        problems.append("The audit condemns every checkpoint: no weights were measured.")
        return Looked(run.name, run, audit, table, None, _logged(run, problems), problems)
    more = None
    if table is None and circuits:
        table = _tried(lambda: kept.table(circuits, audit), "the probes", problems)
    if spectra and table is not None:
        heads, what = [name for name in circuits if name not in ROLES] or circuits, "spectra and modes"
        settings = {"probes": SPECTRA, "ending": ".spectra.parquet", "called": what}
        more = _tried(lambda: kept.table(heads, audit, **settings), what, problems)
    return Looked(run.name, run, audit, table, more, _logged(run, problems), problems)


def _tried(make: Callable[[], Made], what: str, problems: list[str]) -> Made | None:
    try:
        return make()
    except (OSError, ValueError) as error:
        problems.append(f"Could not measure {what}: {error}")
        return None


@contextmanager
def _warnings_into(problems: list[str]) -> Iterator[None]:
    """What is warned of on the way stands on the page too, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", UserWarning)
        yield
    for one in caught:
        text = str(one.message)
        if not issubclass(one.category, UserWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        elif text not in problems:
            problems.append(text)
            warnings.warn(text, one.category, stacklevel=3)


def _logged(run: Run, problems: list[str]) -> pd.DataFrame | None:
    try:
        metrics = run.metrics
    except (OSError, ValueError) as error:
        problems.append(f"What was logged cannot be read: {error}")
        return None
    if metrics is None or metrics.empty:
        problems.append(
            "No metrics were found beside the checkpoints: no loss is shown, and no event can be tied to behaviour. "
            "--metrics FILE says where they are."
        )
        return None
    return metrics
