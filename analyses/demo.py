"""`make demo`: train two small models, find out what happened in them, and say what to do with checkpoints of one's own.

The linear head of paper 000, for which theory gives every time, is trained and judged in this process. Beside it, on
another core, two attention layers learn to repeat what they have seen: in-context learning emerges near step 1000. That
run is then told in a report, as any folder of checkpoints would be. What was trained before is not trained again.
"""

import subprocess
import sys
import time
from pathlib import Path

import matplotlib
import typer

from analyses.drawing import draw, show
from analyses.gallery.reports import write_report
from analyses.registry import GROUPS

OUT, RUNS = Path("results"), Path("checkpoints/runs")
LEARNER = "attention-only-small-seed0"
TRAIN = ["attention-only", "--preset", "small", "--seed", "0"]


def demo(out: Path = OUT, runs: Path = RUNS, size: str = "quick") -> Path:
    """Train, judge, report; the path of the report."""
    matplotlib.use("Agg")
    begun = time.perf_counter()
    typer.echo(f"In the background: python -m models {' '.join(TRAIN)} (20 s on a core of its own)")
    command = [sys.executable, "-m", "models", *TRAIN, "--out", str(runs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as learner:
        try:
            draw(list(GROUPS["linear"].pages), size, out, runs, reports=False)
            _, errors = learner.communicate()
        except BaseException:
            learner.terminate()
            raise
    if learner.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{errors}")
    report = write_report(runs / LEARNER, out, f"{LEARNER}.html", typer.echo)
    typer.echo(_closing(report, show(out), runs / LEARNER, time.perf_counter() - begun))
    return report


def _closing(report: Path, gallery: Path, run: Path, seconds: float) -> str:
    return f"""
Done in {seconds:.0f} s. Open these two files in a browser:
  {report.resolve()}   a run that learned, event by event
  {gallery.resolve()}   figures and verdicts

Your own checkpoints:
  .venv/bin/probes report FOLDER -o report.html    any trainer's folder, or hub:NAME --revisions 'step*'; this one was {run}
  .venv/bin/probes events FOLDER                   the same as text; --controls OTHER for a run in which it does not happen
  docs/monitor.md                                  to be told while you train
"""


if __name__ == "__main__":
    demo()
