"""Reports on the runs behind the pages: for each page that shows a run with circuits, one of its runs, told in full.

A report goes to `reports/` beside the pages, under the name of its run, and the gallery links to it. Runs of other pages
are told by their figures alone: many small settings, none of which stands for the page.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from analyses.registry import SIZES
from checkpoints import open_run
from models.theories import THEORIES, theory_of

FOLDER = "reports"

EXAMPLES = {
    "fixed_point": "linear-icl-{size}/three-modes-N128-seed0",
    "mode_trajectories": "linear-icl-{size}/three-modes-N128-seed0",
    "loss_plateaus": "linear-icl-{size}/far-apart-seed0",
    "timescale_separation": "linear-icl-{size}/far-apart-seed0",
    "icl_emergence": "attention-only-{size}/2-layers-seed0",
    "grokking": "modular-addition-{size}/grokking-seed0",
    "multi_head_plateaus": "multi-head-{size}/figure-1-N*-seed0",
    "multi_head_ranks": "multi-head-{size}/figure-2-R*-seed0",
    "merged_weights_flow": "merged-weights-{size}/fixed-N*-seed0",
    "sparse_solution": "multitask-sparse-{size}/fig2-psi*-seed0",
}
"""By page: one of its runs, below the folder of runs; the first by name where several fit."""

ALSO = {"icl_emergence": ("attention-only-small-seed0",)}
"""By page: runs of `make demo` that show the same."""


def write_reports(pages: Sequence[str], size: str, runs: Path, out: Path, say: Callable[[str], None]) -> None:
    """One report for each example that was trained, unless it is there already and younger than its run."""
    for example in dict.fromkeys(EXAMPLES[page].format(size=size) for page in pages if page in EXAMPLES):
        for run in sorted(runs.glob(example))[:1]:
            write_report(run, out, _file(f"{run.parent.name}/{run.name}"), say)


def write_report(run: Path, out: Path, name: str, say: Callable[[str], None]) -> Path:
    """The report on one run; what is measured for it is kept with the reports."""
    import probes

    place = out / FOLDER / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists() or place.stat().st_mtime < max(file.stat().st_mtime for file in run.iterdir()):
        say(f"report on {run.name} ...")
        opened, tables = open_run(run), out / FOLDER / "tables" / run.parent.name
        theory = theory_of if opened.family in THEORIES else None
        command = f"probes report {run} -o {place}" + " --theory models.theories:theory_of" * (theory is not None)
        probes.report(opened, path=place, tables=tables, theory=theory, command=command)
    return place


def reports_of(page: str, out: Path) -> list[str]:
    """The reports that there are on runs of this page: names of files in `reports/`."""
    known = [_file(EXAMPLES[page].format(size=size)) for size in SIZES] if page in EXAMPLES else []
    known += [f"{name}.html" for name in ALSO.get(page, ())]
    return [found.name for name in known for found in sorted((out / FOLDER).glob(name))]


def _file(example: str) -> str:
    return example.replace("/", "-") + ".html"
