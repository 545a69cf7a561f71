"""Weights that appear at two steps: repeated neighbours, copies of other steps, final weights before the end.

Bitwise equal tensors of any size do not happen by chance in training, but a learning rate of zero leaves neighbours
equal, and a training that was set back to an older step begins with its weights: those are pointed at. What leaves a
value and has it again is condemned. Which of two equal steps is wrong is told by the last step, which is taken at its
word, and otherwise by which of them does not fit between its neighbours. Equal is also what is equal once it is rounded
to bfloat16, where one of the two has no more bits than that.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from checkpoints.audit.fault import Fault
from checkpoints.audit.fingerprint import Fingerprint
from checkpoints.audit.movement import Movement

Series = Mapping[int, Mapping[str, Fingerprint]]

LARGE = 64
"""Entries from which equality of two tensors means something, in models that have tensors of that size."""

RARE = 0.2
"""A tensor that stays the same over more than this share of the intervals is frozen, which is nobody's fault."""


def faults_of_equality(series: Series, movement: Movement) -> list[Fault]:
    """All faults that equal weights show."""
    steps = list(series)
    if len(steps) < 2:
        return []
    labels = {name: _labels(series, steps, name) for name in _changing(series, steps)}
    if not labels:
        return _unchanging(series, steps)
    faults = [*_repeated(steps, labels), *_copies(series, steps, labels, movement), *_rounded(series, steps, labels)]
    told = {fault.step for fault in faults}
    return faults + _partly_repeated(series, steps, labels, told)


def never_changes(series: Series) -> bool:
    """Whether no tensor of any size is different at any two steps."""
    return len(series) > 1 and not _changing(series, list(series))


def _unchanging(series: Series, steps: Sequence[int]) -> list[Fault]:
    if any(series[step].keys() != series[steps[-1]].keys() for step in steps):
        return []
    same = f"every tensor is that of the last step, {steps[-1]}: all steps of this run are the same"
    return [Fault(step, "final_weights", same) for step in steps[:-1]]


def _changing(series: Series, steps: Sequence[int]) -> list[str]:
    """Large tensors that are in every step and are trained; small ones recur by themselves."""
    common = set.intersection(*(set(series[step]) for step in steps))
    size = LARGE if any(math.prod(series[steps[0]][name].shape) >= LARGE for name in common) else 4
    changing = sorted(
        name
        for name in common
        if all(math.prod(series[step][name].shape) >= size for step in steps)
        and not all(series[step][name].is_constant for step in steps)
        and len({series[step][name].digest for step in steps}) > 1
    )
    return [name for name in changing if not _is_frozen(_labels(series, steps, name))] or changing


def _is_frozen(digests: list[bytes]) -> bool:
    """Whether a tensor ends as it began and mostly stays so, as a mask or a frozen layer does."""
    return digests[0] == digests[-1] and digests.count(digests[0]) > len(digests) / 2


def _labels(series: Series, steps: Sequence[int], name: str) -> list[bytes]:
    return [series[step][name].digest for step in steps]


def _repeated(steps: Sequence[int], labels: Mapping[str, list[bytes]]) -> list[Fault]:
    """Runs of neighbours in which everything is equal."""
    faults, start = [], 0
    for end in range(1, len(steps) + 1):
        if end < len(steps) and all(digests[end] == digests[start] for digests in labels.values()):
            continue
        group = list(steps[start:end])
        is_final = all(digests[start] == digests[-1] for digests in labels.values())
        if is_final and end == len(steps):
            same = f"every tensor is that of the last step, {steps[-1]}, and of all steps between"
            faults += [Fault(step, "unchanged", same) for step in group[:-1]]
        elif len(group) > 1 and not is_final and group != [0, 1]:  # a warm-up from zero leaves 1 as it was at 0
            for step in group:
                others = ", ".join(str(other) for other in group if other != step)
                faults.append(Fault(step, "repeated", f"every tensor is that of step {others}"))
        start = end
    return faults


def _copies(series: Series, steps: Sequence[int], labels: Mapping[str, list[bytes]], movement: Movement) -> list[Fault]:
    """Tensors that leave a value and are found at it again."""
    found: dict[tuple[int, int], list[str]] = {}  # (wrong, the step it equals): tensors
    last = len(steps) - 1
    for name, digests in labels.items():
        places: dict[bytes, list[int]] = {}
        for i, digest in enumerate(digests):
            places.setdefault(digest, []).append(i)
        for group in places.values():
            if group[-1] == last:
                for i in group[: -_run_length(group)]:
                    found.setdefault((i, last), []).append(name)
                continue
            for i, j in pairwise(group):
                if j > i + 1:
                    wrong, of = (i, j) if movement.misfit(name, i) > movement.misfit(name, j) else (j, i)
                    found.setdefault((wrong, of), []).append(name)
    faults = []
    for (wrong, of), names in sorted(found.items()):
        evidence = (
            f"{_share(series[steps[wrong]], names, labels)} that of {'the last step, ' * (of == last)}{steps[of]}"
        )
        if len(names) == len(labels) and movement.is_set_back(max(wrong, of), min(wrong, of)):
            later, earlier = steps[max(wrong, of)], steps[min(wrong, of)]
            faults.append(
                Fault(later, "resumed", f"every tensor is that of step {earlier}, and training goes on from it")
            )
        else:
            faults.append(Fault(steps[wrong], "final_weights" if of == last else "copy", evidence))
    return faults


def _rounded(series: Series, steps: Sequence[int], labels: Mapping[str, list[bytes]]) -> list[Fault]:
    """Steps that have no more bits than bfloat16 and are another step, which has more, rounded."""
    coarse = {step for step in steps if all(series[step][name].is_rounded for name in labels)}
    fine = [step for step in reversed(steps) if not any(series[step][name].is_rounded for name in labels)]
    faults = []
    for step in sorted(coarse) if fine else ():
        sums = [series[step][name].rounded for name in labels]
        of = next((other for other in fine if sums == [series[other][name].rounded for name in labels]), None)
        if of is not None:
            kind, what = ("final_weights", "the last step, ") if of == steps[-1] else ("copy", "step ")
            faults.append(Fault(step, kind, f"every tensor is that of {what}{of}, rounded to bfloat16"))
    return faults


def _run_length(group: list[int]) -> int:
    """How many of these numbers, at the end, follow each other without a hole."""
    length = 1
    while length < len(group) and group[-length - 1] == group[-length] - 1:
        length += 1
    return length


def _partly_repeated(
    series: Series, steps: Sequence[int], labels: Mapping[str, list[bytes]], told: set[int]
) -> list[Fault]:
    """Tensors that stood still for once, where others moved, at steps of which nothing worse was told."""
    still = {name: [a == b for a, b in pairwise(d)] for name, d in labels.items()}
    moving = {name: flags for name, flags in still.items() if sum(flags) <= max(1, RARE * len(flags))}
    faults = []
    for i in range(len(steps) - 1):
        names = [name for name, flags in moving.items() if flags[i]]
        if names and not told & {*steps[i : i + 2]} and len(names) >= 0.1 * len(moving) and steps[i : i + 2] != [0, 1]:
            evidence = f"{_share(series[steps[i + 1]], names, labels)} that of step {steps[i]}"
            faults.append(Fault(steps[i + 1], "partly_repeated", evidence))
    return faults


def _share(tensors: Mapping[str, Fingerprint], names: list[str], changing: Mapping[str, object]) -> str:
    files = {tensors[name].file for name in names}
    whole = [
        file
        for file in sorted(files)
        if len({fingerprint.file for fingerprint in tensors.values()}) > 1
        and {n for n, f in tensors.items() if f.file == file and n in changing} <= set(names)
    ]
    shard = f" (all of {', '.join(file.rsplit('/', 1)[-1] for file in whole)})" if whole else ""
    if len(names) == len(changing):
        return "every tensor is"
    some = f"{len(names)} of {len(changing)} tensors" if len(names) > 1 else names[0]
    return f"{some}{shard} {'are' if len(names) > 1 else 'is'}"
