"""How far the weights move from step to step, and steps that do not lie on the way.

On any path that training takes, ballistic or diffusive, a step lies between its neighbours: the way over it is at most
sqrt(2) times the way past it. A step from elsewhere is a detour. Two steps in each other's places make the way longer,
and exchanging them makes it shorter. What is compared are lengths on one path, so neither learning rate nor spacing
matters.
"""

import math
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import torch

from checkpoints.audit.fault import Fault
from checkpoints.audit.fingerprint import Fingerprint

DETOUR = 2.5
"""Way over a step as a multiple of the way past it, in at least half of the matrices of a file. A random walk makes
sqrt(2), and momentum can turn back; over 80 healthy little runs the largest median over matrices was 1.6."""

DETOUR_OF_A_SWAP = 3.5
"""At an end of the series exchanged neighbours make a detour of 1 + sqrt(2) to 3."""

MATERIAL = 1e-4
"""Movement, as a share of a tensor's size, that is looked at; for weights of few bits, four times their rounding."""

SHORTER = 0.9
"""How much shorter exchanging two neighbours must make the way. Two that were exchanged make it .5 on a straight way
and .71 on a random walk (256 pairs in healthy little runs: up to .85); two that were not, 1.24 and more; weights that
only jitter about a minimum, 1."""

JUMP = 6.0
"""Movement in one interval as a multiple of what the intervals around it suggest, however movement grows with time."""


class Movement:
    """Distances between the steps of a series, tensor by tensor, from their sketches."""

    def __init__(self, series: Mapping[int, Mapping[str, Fingerprint]]) -> None:
        self.series = series
        self.steps = list(series)

    @cached_property
    def names(self) -> list[str]:
        """Matrices that are in every step with one shape: what movement is measured on."""
        if not self.steps:
            return []
        common = set.intersection(*(set(self.series[step]) for step in self.steps))
        return sorted(name for name in common if self._is_comparable(name))

    def _is_comparable(self, name: str) -> bool:
        found = [self.series[step][name] for step in self.steps]
        shapes = {f.shape for f in found}
        if not all(f.dtype.is_floating_point for f in found):
            return False
        return len(shapes) == 1 and len(found[0].shape) > 1 and math.prod(found[0].shape) >= 64 and found[-1].norm > 0

    @cached_property
    def material(self) -> float:
        """Movement below this can be the rounding of the stored weights."""
        coarse = max((torch.finfo(self.series[s][n].dtype).eps for s in self.steps for n in self.names), default=0.0)
        return max(MATERIAL, 4 * coarse)

    @cached_property
    def files(self) -> dict[str, str]:
        """By tensor, the file of the last step that holds it."""
        return {name: self.series[self.steps[-1]][name].file for name in self.names}

    @cached_property
    def _sketches(self) -> np.ndarray:  # [step, tensor, 64], each tensor in units of its own size
        scale = np.array([np.median([self.series[s][name].norm for s in self.steps]) or 1.0 for name in self.names])
        sketches = [[self.series[step][name].sketch for name in self.names] for step in self.steps]
        return np.asarray(sketches, dtype=np.float64) / scale[:, None]

    def between(self, i: int, j: int) -> np.ndarray:
        """[tensor]: how far apart two steps are, as a share of the size of each tensor."""
        return np.linalg.norm(self._sketches[i] - self._sketches[j], axis=-1)

    def misfit(self, name: str, i: int) -> float:
        """Way over a step as a multiple of the way past it, for one tensor; 1 to sqrt(2) on a path of training."""
        if name not in self.names or not 0 < i < len(self.steps) - 1:
            return 1.0
        return float(self.detours(i)[self.names.index(name)])

    def detours(self, i: int) -> np.ndarray:
        """[tensor]: way over a step as a multiple of the way past it."""
        over = self.between(i - 1, i) + self.between(i, i + 1)
        past = self.between(i - 1, i + 1)
        return over / np.maximum(past, 1e-12)


def faults_of_movement(series: Mapping[int, Mapping[str, Fingerprint]]) -> list[Fault]:
    """Steps out of place, and jumps. The series should be free of unreadable, misshapen and equal steps."""
    movement = Movement(series)
    if len(movement.steps) < 3 or not movement.names:
        return []
    swapped = _swapped(movement)
    told = {fault.step for fault in swapped}
    excursions = [fault for fault in _excursions(movement) if fault.step not in told]
    told |= {fault.step for fault in excursions}
    rest = {step: tensors for step, tensors in series.items() if step not in told}
    return swapped + excursions + _jumps(Movement(rest))


def _excursions(movement: Movement) -> list[Fault]:
    faults = []
    files = np.array([movement.files[name] for name in movement.names])
    for i in range(1, len(movement.steps) - 1):
        ways = np.minimum(movement.between(i - 1, i), movement.between(i, i + 1))
        away = (movement.detours(i) > DETOUR) & (ways > movement.material)
        for file in np.unique(files[away]):
            inside = files == file
            far = away & inside
            if far.sum() >= 0.5 * inside.sum():
                where = "" if len(set(files)) == 1 else f" of {file.rsplit('/', 1)[-1]}"
                ratio = float(np.median(movement.detours(i)[far]))
                faults.append(
                    Fault(
                        movement.steps[i],
                        "excursion",
                        f"in {far.sum()} of {inside.sum()} matrices{where} the way over it is {ratio:.0f} times "
                        f"the way from step {movement.steps[i - 1]} to {movement.steps[i + 1]}",
                    )
                )
                break
    return faults


def _swapped(movement: Movement) -> list[Fault]:
    """Neighbours that shorten the way when they change places."""
    steps, faults, last = movement.steps, [], -1
    for i in range(len(steps) - 1):
        if i == last:
            continue
        as_is, exchanged = [], []
        if i > 0:
            as_is.append(movement.between(i - 1, i))
            exchanged.append(movement.between(i - 1, i + 1))
        if i + 2 < len(steps):
            as_is.append(movement.between(i + 1, i + 2))
            exchanged.append(movement.between(i, i + 2))
        if not as_is or np.median(movement.between(i, i + 1)) < movement.material:
            continue
        # both ends must agree: a step that belongs far away shortens the way at one end only. The first and the last
        # step have one end, and there a step from elsewhere is told by the size of the detour over it
        if len(as_is) < 2 and (len(steps) < 4 or np.median(movement.detours(i if i else 1)) > DETOUR_OF_A_SWAP):
            continue
        ratio = max(float(np.median(b / np.maximum(a, 1e-12))) for a, b in zip(as_is, exchanged, strict=True))
        if ratio < SHORTER:
            last = i + 1
            for step, other in ((steps[i], steps[i + 1]), (steps[i + 1], steps[i])):
                evidence = f"exchanging it with step {other} makes the way through its neighbours {ratio:.2f} as long"
                faults.append(Fault(step, "swapped", evidence))
    return faults


def _jumps(movement: Movement) -> list[Fault]:
    steps = movement.steps
    if len(steps) < 4:
        return []
    ways = np.array([np.median(movement.between(i, i + 1)) for i in range(len(steps) - 1)])
    spans = np.diff(steps).astype(float)
    faults = []
    for i in range(1, len(ways)):  # the first interval is when training is fastest; nothing can be said of it
        around = [j for j in (i - 2, i - 1, i + 1, i + 2) if 0 <= j < len(ways)]
        expected = max(ways[j] * (spans[i] / spans[j]) ** power for j in around for power in (0.5, 1.0))
        if ways[i] > JUMP * expected and ways[i] > 5 * movement.material:
            evidence = (
                f"half of the matrices moved {ways[i] / expected:.0f} times as far as the intervals around suggest"
            )
            faults.append(Fault(steps[i + 1], "jump", evidence))
    return faults
