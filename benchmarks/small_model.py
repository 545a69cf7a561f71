"""What a small model costs, here and at another commit, side by side: `python -m benchmarks.small_model [COMMIT]`.

Of a small model the arithmetic is nothing: it pays for calls, files and tables, as a live monitor does at every
measurement. Both commits measure the same run, in processes of their own that take turns; processor time, the best of
the rounds. The other commit is checked out beside this one for as long as that takes. By default it is the last one
that built a table per checkpoint.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import synthetic

_BEFORE = "16ccffd"
_ROOT = Path(__file__).parents[1]
_ROUNDS = 3

_MEASURE = """
import sys, time
import probes
from checkpoints import open_run
run = open_run(sys.argv[1])
probes.measure(run, audit=False)
best = 1e9
for _ in range(3):
    start = time.process_time()
    probes.measure(run, audit=False)
    best = min(best, time.process_time() - start)
print(1e3 * best / len(run.steps))
"""


def run(against: str = _BEFORE) -> None:
    """Print milliseconds of processor time per checkpoint, and their ratio."""
    print("Measuring a small model (all probes), ms of processor time per checkpoint")
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        try:
            _git("worktree", "add", "--detach", str(other), against)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"  nothing to compare with: {against} cannot be checked out ({error})")
            return
        try:
            for layers, width, heads in ((1, 32, 2), (2, 32, 2), (4, 64, 4)):
                path = Path(folder) / f"{layers}-{width}"
                synthetic(path, 60, layers, width, heads)
                there, here = _best(path, other, _ROOT)
                print(
                    f"  {layers} layers of {heads} heads, d_model {width}: {against} {there:.1f}, now {here:.1f} "
                    f"({there / here:.1f}x)"
                )
        finally:
            _git("worktree", "remove", "--force", str(other))


def _best(path: Path, *roots: Path) -> list[float]:
    found = [[_milliseconds(path, root) for root in roots] for _ in range(_ROUNDS)]
    return [min(times) for times in zip(*found, strict=True)]


def _milliseconds(path: Path, root: Path) -> float:
    command = [sys.executable, "-c", _MEASURE, str(path)]
    return float(subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout)


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=_ROOT, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    run(*sys.argv[1:])
