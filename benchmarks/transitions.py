"""How often find_transitions is right: cliffs found, false alarms, error, coverage; on seeds used for nothing else."""

import numpy as np

from benchmarks.known_series import CLIFFS, NOTHING_HAPPENS, noisy_loss, nothing
from probes import find_transitions

SERIES = 200
SEEDS = 8


def run() -> None:
    """Print false alarms where nothing happens, and recall and error on closed-form losses by noise and spacing."""
    print(f"find_transitions, {SERIES} series each in which nothing happens (1000, 4000 or 20000 steps): false alarms")
    for kind in NOTHING_HAPPENS:
        alarms = 0
        for seed in range(SERIES):
            values, steps = nothing(kind, (1000, 4000, 20000)[seed % 3], np.random.default_rng([2027, seed]))
            alarms += len(find_transitions(values, steps)) > 0
        print(f"  {kind:34s} {alarms:3d} of {SERIES} ({100 * alarms / SERIES:.1f} %)")
    print(f"\nCliffs of closed-form losses, {SEEDS} seeds of {len(CLIFFS)} settings, noise in proportion to the loss:")
    print(f"  {'noise':>6} {'steps per unit time':>20} {'found':>8} {'extra':>6} {'median error':>13} {'covered':>8}")
    for noise in (0.0, 0.05, 0.15):
        for spacing in (0.05, 0.02, 0.01):
            print(f"  {noise:6.2f} {1 / spacing:20.0f} {_recall(noise, spacing)}")


def _recall(noise: float, spacing: float) -> str:
    true = found = extra = 0
    errors, covered = [], []
    for theory in CLIFFS.values():
        for seed in range(SEEDS if noise else 1):
            table = find_transitions(*noisy_loss(theory, noise, 8000 + seed, spacing))
            missing = list(theory.loss_half_times)
            true += len(missing)
            for _, row in table.loc[table["kind"] != "settled"].iterrows():
                near = [t for t in missing if abs(np.log(row["step"] / t)) < 0.25]
                if row["kind"] == "cliff" and near:
                    missing.remove(near[0])
                    found += 1
                    errors.append(abs(row["step"] / near[0] - 1))
                    covered.append(row["low"] <= near[0] <= row["high"])
                else:
                    extra += 1
    return f"{found:4d}/{true:<3d} {extra:6d} {100 * np.median(errors):11.1f} % {100 * np.mean(covered):6.0f} %"
