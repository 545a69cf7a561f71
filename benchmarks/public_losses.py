"""What find_transitions says about public training curves, kept in a folder of .npz files outside of the project.

    python -m benchmarks.public_losses FOLDER [CHECKPOINTS]

Of each curve (`NAME.steps` with `NAME.loss` or `NAME.values`): its rows, where it was searched, and the seconds taken.
With a number of checkpoints, of the same curve as an evaluation at so many log-spaced ones would have it: means of up
to 21 values around each.
"""

import sys
import time
import warnings
from pathlib import Path

import numpy as np

from probes import find_transitions

EITHER_SIDE = 10


def run(folder: Path, checkpoints: int = 0) -> None:
    """Print what is found in every curve of every file, or at some log-spaced checkpoints of it."""
    warnings.simplefilter("ignore")
    for path in sorted(folder.glob("*.npz")):
        data = np.load(path)
        for name in sorted(key.removesuffix(".steps") for key in data.files if key.endswith(".steps")):
            values = data[f"{name}.loss"] if f"{name}.loss" in data.files else data[f"{name}.values"]
            steps, values = data[f"{name}.steps"].astype(float), values.astype(float)
            if checkpoints and len(steps) > checkpoints:
                steps, values = evaluated(steps, values, checkpoints)
            tell(name, steps, values)


def evaluated(steps: np.ndarray, values: np.ndarray, checkpoints: int) -> tuple[np.ndarray, np.ndarray]:
    """Means around log-spaced steps, never of values from before the first."""
    wanted = np.geomspace(max(steps[0], 1.0), steps[-1], checkpoints)
    places = np.unique(np.searchsorted(steps, wanted).clip(0, len(steps) - 1))
    reach = np.minimum(EITHER_SIDE, np.minimum(places, len(steps) - 1 - places))
    means = [values[place - r : place + r + 1].mean() for place, r in zip(places, reach, strict=True)]
    return steps[places], np.array(means)


def tell(name: str, steps: np.ndarray, values: np.ndarray) -> None:
    """One curve: a line for itself and one for each row."""
    start = time.perf_counter()
    found = find_transitions(values, steps)
    seconds = time.perf_counter() - start
    where = ", ".join(f"{low:.0f} to {high:.0f}" for low, high in found.attrs["searched"])
    print(f"{name}: {len(values)} values, searched {where or 'nowhere'}, {seconds:.2f} s")
    for _, row in found.iterrows():
        print(
            f"    {row['kind']:12s} {row['direction']:4s} {row['step']:9.0f} [{row['low']:.0f}, {row['high']:.0f}]  "
            f"strength {row['strength']:.3f}  p {row['p_value']:.1e}"
        )


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
