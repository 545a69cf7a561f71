"""Series of a million steps: autocorrelation, curvature and transitions."""

import numpy as np

from benchmarks.clock import best_of_turns
from probes import find_transitions, loss_autocorrelation, loss_autocorrelation_curvature


def run() -> None:
    """Print seconds for a series of a hundred thousand and of a million steps."""
    print("Series, seconds:")
    print(f"{'steps':>10} {'autocorrelation':>16} {'its curvature':>14} {'find_transitions':>17}")
    rng = np.random.default_rng(0)
    for n in (100_000, 1_000_000):
        steps = np.arange(n)
        loss = np.exp(-steps / n) + 1 / (1 + np.exp((steps - n / 3) / (n / 40))) + 0.1 * rng.standard_normal(n)
        seconds = best_of_turns(
            {
                "autocorrelation": lambda loss=loss: loss_autocorrelation(loss),
                "curvature": lambda loss=loss: loss_autocorrelation_curvature(loss),
                "transitions": lambda loss=loss, steps=steps: find_transitions(loss, steps),
            },
            rounds=2,
        )
        print(f"{n:10d} {seconds['autocorrelation']:16.2f} {seconds['curvature']:14.2f} {seconds['transitions']:17.2f}")
