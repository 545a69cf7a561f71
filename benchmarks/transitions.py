"""How often find_transitions is right: cliffs found, false alarms, error, coverage; on seeds used for nothing else."""

import numpy as np

from probes import find_transitions
from probes.series.datasets import LINEAR_HEADS, NULLS, linear_head_loss, null

SERIES = 200
SEEDS = 8


def run() -> None:
    """Print false alarms where nothing happens, and recall and error on closed-form losses by noise and spacing."""
    print(f"find_transitions, {SERIES} series each in which nothing happens (1000, 4000 or 20000 steps): false alarms")
    for kind in NULLS:
        alarms = 0
        for seed in range(SERIES):
            data = null(kind, (1000, 4000, 20000)[seed % 3], seed=[2027, seed])
            alarms += len(find_transitions(data.series)) > 0
        print(f"  {kind:34s} {alarms:3d} of {SERIES} ({100 * alarms / SERIES:.1f} %)")
    print(f"\nCliffs of {len(LINEAR_HEADS)} closed-form losses, {SEEDS} seeds each, noise in proportion to the loss:")
    print(f"  {'noise':>6} {'steps per unit time':>20} {'found':>8} {'extra':>6} {'median error':>13} {'covered':>8}")
    for noise in (0.0, 0.05, 0.15):
        for spacing in (0.05, 0.02, 0.01):
            print(f"  {noise:6.2f} {1 / spacing:20.0f} {_recall(noise, spacing)}")


def _recall(noise: float, spacing: float) -> str:
    true = found = extra = 0
    errors, covered = [], []
    for setting in LINEAR_HEADS:
        for seed in range(SEEDS if noise else 1):
            data = linear_head_loss(setting, noise=noise, seed=8000 + seed, spacing=spacing)
            table = find_transitions(data.series)
            missing = list(data.times)
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
