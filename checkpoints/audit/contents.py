"""Steps whose numbers cannot be weights, or not those of that step, whatever way training took.

A matrix that is zero and was not; one entry as large as all others together, which a flipped bit makes; all matrices
larger by one factor, for one step; and moments of an optimizer saved in place of the weights.
"""

import math
from collections.abc import Mapping

import numpy as np

from checkpoints.audit.fault import Fault
from checkpoints.audit.fingerprint import Fingerprint
from checkpoints.audit.movement import Movement
from checkpoints.matrices import GAIN

Series = Mapping[int, Mapping[str, Fingerprint]]

LARGE = 64
"""Entries from which a matrix is looked at."""

DOMINANT, USUAL = 0.5, 0.1
"""Share of the sum of squares that one entry has, and has at most in all other steps."""

SCALED, ALIKE = 0.01, 0.2
"""Size of a common factor, in its logarithm, that is looked at, and how far four of five matrices may differ in it, as
a share of it. In 43 healthy little runs they differed by .41 or more, in 39 of 43 with a step 1.1 times as large by .16
or less."""

ONE_SIDED, FORGOTTEN = 0.7, 0.3
"""Sum of a norm's gains over what it would be if all were equal, below which they are no gains as most models have
them; and the correlation of neighbouring steps below which nothing is kept from one to the next, as of gradients."""


def faults_of_contents(series: Series) -> list[Fault]:
    """All that the numbers of each step show, beside those of other steps."""
    return [*_zeroed(series), *_outliers(series), *_scaled(series), *_not_weights(series)]


def _matrices(series: Series) -> list[str]:
    """Names of the matrices of some size that every step has."""
    if not series:
        return []
    common = set.intersection(*(set(tensors) for tensors in series.values()))
    first = next(iter(series.values()))
    return sorted(n for n in common if len(first[n].shape) > 1 and math.prod(first[n].shape) >= LARGE)


def _zeroed(series: Series) -> list[Fault]:
    faults, steps = [], list(series)
    for name in _matrices(series):
        norms = [series[step][name].norm for step in steps]
        began = next((i for i, norm in enumerate(norms) if norm > 0), len(norms))  # some begin at zero, on purpose
        faults += [
            Fault(step, "zeroed", f"{name} is zero, and was not at step {steps[began]}")
            for step, norm in zip(steps[began:], norms[began:], strict=True)
            if norm == 0
        ]
    return faults


def _outliers(series: Series) -> list[Fault]:
    faults = []
    for name in _matrices(series) if len(series) > 2 else ():
        shares = {step: tensors[name].largest_share for step, tensors in series.items()}
        ranked = sorted(shares.values())
        if ranked[-1] > DOMINANT and ranked[-2] < USUAL:
            step = max(shares, key=shares.__getitem__)
            found = series[step][name]
            largest = max(found.lowest, found.highest, key=abs)
            evidence = f"one entry of {name} is {largest:.3g}, {shares[step]:.0%} of the sum of its squares"
            faults.append(Fault(step, "outlier", evidence))
    return faults


def _scaled(series: Series) -> list[Fault]:
    names, steps = _matrices(series), list(series)
    if len(names) < 4 or len(steps) < 5:
        return []
    logs = np.log([[max(series[step][name].norm, 1e-300) for name in names] for step in steps])
    over = np.stack([logs[1:-1] - logs[:-2], logs[1:-1] - logs[2:]])  # [neighbour, step, matrix]
    bends = over.mean(0)
    middle, sides = np.median(bends, axis=1), np.median(over, axis=2)
    spread = np.quantile(np.abs(bends - middle[:, None]), 0.8, axis=1)
    faults = []
    for i, (bend, width) in enumerate(zip(middle, spread, strict=True)):
        neighbours = [abs(middle[j]) for j in (i - 1, i + 1) if 0 <= j < len(middle)]  # bent back by half of it
        stands_out = bool(np.all(sides[:, i] * np.sign(bend) > SCALED))  # from both: growth, however fast, does not
        if stands_out and abs(bend) > max(neighbours) and width < ALIKE * abs(bend):
            evidence = f"its matrices are {np.exp(bend):.3f} times as large as at steps {steps[i]} and {steps[i + 2]}"
            faults.append(Fault(steps[i + 1], "scaled", evidence))
    return faults


def _not_weights(series: Series) -> list[Fault]:
    """Squared gradients are nowhere negative; averaged ones have gains about zero and forget the step before."""
    movement = Movement(series)
    like = [movement.correlation(i, i + 1) for i in range(len(series) - 1)] if movement.names else []
    forgets = len(like) > 2 and float(np.median(like)) < FORGOTTEN
    faults = []
    for step, tensors in series.items():
        matrices = [f for f in tensors.values() if len(f.shape) > 1 and math.prod(f.shape) >= LARGE]
        matrices = [f for f in matrices if not f.is_constant]
        gains = [f for name, f in tensors.items() if len(f.shape) == 1 and GAIN.search(name) and f.norm > 0]
        even = [abs(f.sum) / (f.norm * math.sqrt(math.prod(f.shape))) for f in gains]
        if len(matrices) > 1 and all(f.lowest >= 0 for f in matrices):
            why = f"none of the {len(matrices)} matrices has a negative entry, as the second moments of an optimizer"
            faults.append(Fault(step, "not_weights", why))
        elif forgets and len(gains) > 1 and float(np.median(even)) < ONE_SIDED:
            why = (
                f"the gains of {len(gains)} norms are about zero on average, and steps have nothing in common with "
                "their neighbours, as the first moments of an optimizer"
            )
            faults.append(Fault(step, "not_weights", why))
    return faults
