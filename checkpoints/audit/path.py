"""Steps that do not lie on the way that training took.

A step from elsewhere is a detour, further off than training moves; two steps in each other's places make the way
longer, and exchanging them makes it shorter. A step that training could have reached, but did not go on from, was left
behind when it was set back: that is pointed at, not condemned.
"""

from collections.abc import Mapping

import numpy as np

from checkpoints.audit.fault import Fault
from checkpoints.audit.fingerprint import Fingerprint
from checkpoints.audit.movement import FITS, Movement

FEW, ALONE = 4, 5.0
"""Groups of fewer matrices than this, and single matrices, must make a detour of so much."""

FAR = 2.0
"""How far beyond what the intervals around suggest a step from elsewhere lies, at least."""

DETOUR_OF_A_SWAP = 3.5
"""At an end of the series exchanged neighbours make a detour of 1 + sqrt(2) to 3."""

SHORTER = 0.9
"""How much shorter exchanging two neighbours must make the way. Two that were exchanged make it .5 on a straight way
and .71 on a random walk (256 pairs in healthy little runs: up to .85); two that were not, 1.24 and more; weights that
only jitter about a minimum, 1."""

JUMP = 6.0
"""Movement in one interval as a multiple of what the intervals around it suggest, however movement grows with time;
and, turned round, as a part of it."""

SET_BACK = 0.7
"""Way to an older step over the way to the one before it."""

UNLIKE, ALIKE = 4.0, 0.7
"""The first step is like the second by no more than so many standard errors of what chance gives; the second and the
third are as alike as this."""

RENAMED = 5.0
"""Growth of the spacing at which the weights should move further, too."""


def faults_of_movement(series: Mapping[int, Mapping[str, Fingerprint]]) -> list[Fault]:
    """Steps out of place, and what is odd about the way. The series should be free of condemned steps."""
    movement = Movement(series)
    if len(movement.steps) < 3 or not movement.names:
        return []
    swapped = _swapped(movement)
    told = {fault.step for fault in swapped}
    found = [fault for fault in _excursions(movement) if fault.step not in told]
    told |= {fault.step for fault in found}
    rest = Movement({step: tensors for step, tensors in series.items() if step not in told})
    if len(rest.steps) < 4:
        return swapped + found
    back = _set_back(rest)
    jumps = [fault for fault in _jumps(rest) if fault.step not in {one.step for one in back}]
    return swapped + found + back + jumps + _stalled(rest) + _unrelated(rest) + _renamed(rest)


def _excursions(movement: Movement) -> list[Fault]:
    """Steps that are far from both neighbours, in all matrices, in those of one file or role, or in one."""
    faults = []
    for i in range(1, len(movement.steps) - 1):
        detours = movement.detours(i)
        ways = np.minimum(movement.ways[i - 1], movement.ways[i])
        known = movement.expected(i - 1, without=(i,))
        away = (ways > movement.material) & ((movement.ways[i - 1] > FAR * known[1]) if known else True)
        alone = away & (detours > ALONE)
        for where, inside in [*movement.groups.items(), *_single(movement, alone)]:
            is_few = inside.sum() < FEW
            far = (alone if is_few else away & (detours > FITS)) & inside
            if far.any() and far.sum() >= (1.0 if is_few else 0.5) * inside.sum():
                ratio = float(np.median(detours[far]))
                evidence = (
                    f"in {far.sum()} of {inside.sum()} matrices{where} the way over it is {ratio:.0f} times the way "
                    f"from step {movement.steps[i - 1]} to {movement.steps[i + 1]}"
                )
                faults.append(Fault(movement.steps[i], "excursion", evidence))
                break
    return faults


def _single(movement: Movement, alone: np.ndarray) -> list[tuple[str, np.ndarray]]:
    return [(f" ({movement.names[k]})", np.arange(len(alone)) == k) for k in np.flatnonzero(alone)]


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


def _set_back(movement: Movement) -> list[Fault]:
    """Steps that are nearer to an older one than to the one before them."""
    faults = []
    for i in range(2, len(movement.steps)):
        to_last = float(np.median(movement.ways[i - 1]))
        ways = [float(np.median(movement.between(i, j))) for j in range(i - 1)]
        older = int(np.argmin(ways))
        if to_last > 5 * movement.material and 0 < ways[older] < SET_BACK * to_last:
            nearer = (
                f"it is {ways[older] / to_last:.2f} as far from step {movement.steps[older]} as from the one before"
            )
            faults.append(Fault(movement.steps[i], "resumed", nearer))
    return faults


def _jumps(movement: Movement) -> list[Fault]:
    faults = []
    for i in range(1, len(movement.ways)):  # the first interval is when training is fastest; nothing can be said of it
        known = movement.expected(i)
        if known is None:
            continue
        for where, inside in movement.groups.items():
            way, most = (float(np.median(one[inside])) for one in (movement.ways[i], known[1]))
            if way > JUMP * most and way > 5 * movement.material:
                evidence = (
                    f"half of the matrices{where} moved {way / most:.0f} times as far as the intervals around suggest"
                )
                faults.append(Fault(movement.steps[i + 1], "jump", evidence))
                break
    return faults


def _stalled(movement: Movement) -> list[Fault]:
    """Steps that hardly differ from the one before: such as a copy with noise added."""
    faults = []
    for i in range(1, len(movement.ways) - 1):
        known = movement.expected(i)
        way = float(np.median(movement.ways[i]))
        if known is not None and 0 < way < float(np.median(known[0])) / JUMP:
            evidence = f"it moved {float(np.median(known[0])) / way:.0f} times less than the intervals around suggest"
            faults.append(Fault(movement.steps[i + 1], "stalled", evidence))
    return faults


def _unrelated(movement: Movement) -> list[Fault]:
    """A first step from another seed: nothing of it is found in the second, while the next two are much alike."""
    like, next_two = movement.correlation(0, 1), movement.correlation(1, 2)
    chance = UNLIKE / np.sqrt(64 * len(movement.names))
    if abs(like) < chance and next_two > ALIKE:
        evidence = f"its correlation with step {movement.steps[1]} is {like:.2f}, that of the next two {next_two:.2f}"
        return [Fault(movement.steps[0], "unrelated", evidence)]
    return []


def _renamed(movement: Movement) -> list[Fault]:
    """The spacing grows by a factor for good, and the movement does not grow at all."""
    spans = np.diff(movement.steps).astype(float)
    ways = np.median(movement.ways, axis=1)
    faults = []
    for i in range(3, len(spans) - 1):
        before, after = spans[i - 3 : i], spans[i + 1 :]
        is_even = before.max() < 1.5 * before.min() and after.max() < 1.5 * after.min()
        if is_even and after.min() > RENAMED * before.max() and ways[:i].min() > 0:
            moved = float(np.median(ways[i + 1 :]) / np.median(ways[i - 3 : i]))
            if moved < 1.2:
                evidence = (
                    f"steps are {after.min() / before.max():.0f} times as far apart from here on, and the weights move "
                    f"{moved:.2f} times as far"
                )
                faults.append(Fault(movement.steps[i + 1], "renamed", evidence))
    return faults[:1]
