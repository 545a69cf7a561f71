"""The whole campaign, kept as it goes: one file of outcomes for each cell, set of seeds and release of the detector.

A cell that is there is not run again, so an interrupted campaign goes on where it was and the judging seeds are used
once for each release. A release is the version and a fingerprint of the detector's code (`probes.series.calibration`).
"""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

import probes
from analyses.calibration.cells import Case, Cell, cells
from analyses.calibration.judge import Outcome, judge
from probes.series.calibration import release_of_this_code

ALPHA = 0.01
LOOSE = 0.5


def detect(case: Case) -> pd.DataFrame:
    """`find_transitions` at its default alpha; at .5 where p-values are what is judged."""
    alpha = LOOSE if case.cell.startswith("reliability/") else ALPHA
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that little could be searched: kept, as `searched`
        return probes.find_transitions(case.values, case.steps, alpha=alpha, interventions=case.shape.interventions)


def run_campaign(
    folder: Path, size: str, seeds: str = "judging", *, parts: Sequence[str] = (), jobs: int = 1, release: str = ""
) -> list[Outcome]:
    """The outcomes of all cells (or of some parts), from the folder where they are there, else run now."""
    from joblib import Parallel, delayed

    home = folder / (release or release_of_this_code()) / size / seeds
    home.mkdir(parents=True, exist_ok=True)
    chosen = [cell for cell in cells(size, seeds) if not parts or cell.part in parts]
    missing = [cell.name for cell in chosen if not _file(home, cell.name).exists()]
    if release and release != release_of_this_code() and missing:
        raise ValueError(f"{home} has no {missing[0]}: outcomes of another release cannot be made with this code")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A worker stopped while some jobs")  # one that has grown is replaced
        Parallel(n_jobs=jobs)(delayed(_run_cell)(home, name, size, seeds) for name in missing)
    return [outcome for cell in chosen for outcome in _read(_file(home, cell.name))]


def _run_cell(home: Path, name: str, size: str, seeds: str) -> None:
    cell = next(cell for cell in cells(size, seeds) if cell.name == name)
    _write(_file(home, name), cell, seeds)


def _file(home: Path, name: str) -> Path:
    return home / (name.replace("/", "--").replace(" ", "_") + ".jsonl")


def _write(path: Path, cell: Cell, seeds: str) -> None:
    lines = [json.dumps(judge(case, detect).as_dict()) for case in cell.cases(seeds)]
    partial = path.with_suffix(".part")
    partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    partial.replace(path)


def _read(path: Path) -> list[Outcome]:
    return [Outcome.from_dict(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
