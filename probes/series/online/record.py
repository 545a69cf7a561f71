"""A growing series, kept so that every stage of it can still be resolved: fine where it began, coarse where it is now.

Stages of training are as long as they are late, so a value at step t need not be kept apart from its neighbours within
t / resolution. An entry is the mean over a block of values, whose length is a power of two and which covers at most
that many steps: single values up to step 2 x resolution, pairs up to 4 x resolution, and so on. With the default of
512, a thousand steps are a thousand entries and every doubling adds 512: a million steps are some six thousand.

The block that is still filling is left out. An entry therefore never changes once it is there, and its noise is that of
its neighbours; the price is that the record ends up to t / resolution before the last step.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import repeat
from math import frexp, inf, isnan
from operator import sub

import numpy as np
from jaxtyping import Float64, Int64

Entries = Float64[np.ndarray, " entries"]
Counts = Int64[np.ndarray, " entries"]

LARGEST = 1e150
"""Beyond this the square of a value overflows, and it counts as not finite."""


class Record:
    """A growing series in memory that grows with the logarithm of its length: means over blocks of it.

    `steps`, `values` and `counts` are those of the blocks, `missing` counts the values that were left out because they
    were not finite. resolution is the number of blocks per doubling of the step.
    """

    def __init__(self, resolution: int = 512) -> None:
        if resolution < 1:
            raise ValueError(f"resolution is {resolution}: at least one entry per step / resolution is expected")
        self.resolution = resolution
        self.missing = 0
        self._steps, self._values, self._counts = array("d"), array("d"), array("q")
        self._last, self._closed_at = -inf, -inf
        self._length, self._count, self._step_sum, self._value_sum = 1, 0, 0.0, 0.0

    def add(self, step: float, value: float) -> None:
        """Take in one more value. Steps may begin anywhere and be spaced unevenly, but must increase."""
        if not step > self._last:
            raise ValueError(f"step {step:g} came after step {self._last:g}: steps must increase")
        self._last = step
        if not -LARGEST <= value <= LARGEST:  # nor is NaN
            self.missing += 1
            return
        self._count += 1
        self._step_sum += step
        self._value_sum += value
        if self._count == self._length:
            self._close()

    def extend(self, steps: Sequence[float], values: Sequence[float]) -> None:
        """Take in several, one after the other."""
        if self._takes_each(steps) and are_finite(values):
            self._steps.extend(steps)
            self._values.extend(values)
            self._counts.extend(repeat(1, len(steps)))
            self._last = self._closed_at = steps[-1]
            return
        for step, value in zip(steps, values, strict=True):
            if self._length > 1 or not (step > self._last and -LARGEST <= value <= LARGEST):
                self.add(step, value)
                continue
            self._last = step  # a block of its own, as most are: the same as `add`, without its sums
            self._steps.append(step)
            self._values.append(value)
            self._counts.append(1)
            most = step / (self.resolution * (step - self._closed_at))
            self._closed_at = step
            if most >= 2:
                self._length = _power_of_two(most)

    @property
    def steps(self) -> Entries:
        """The mean step of each block."""
        return np.array(self._steps)

    @property
    def values(self) -> Entries:
        """The mean value of each block."""
        return np.array(self._values)

    @property
    def counts(self) -> Counts:
        """How many values each block holds."""
        return np.array(self._counts, dtype=np.int64)

    @property
    def last(self) -> float | None:
        """The last step added, None before the first. It is later than the last entry, whose block it may not fill."""
        return None if self._last == -inf else self._last

    def __len__(self) -> int:
        return len(self._steps)

    def count_of_recent(self, share: float) -> int:
        """How many entries are from step last x share on; in blocks as long as the longest there may be fewer."""
        return len(self._steps) - bisect_left(self._steps, share * self._steps[-1]) if self._steps else 0

    def recent(self, share: float) -> tuple[Entries, Entries]:
        """Steps and values from step last x share on, all in blocks as long as the longest among them.

        Means of few values and of many do not carry the same noise, nor the same correlation of it with the next.
        """
        steps, values, counts = self.steps, self.values, self.counts
        first = int(np.searchsorted(steps, share * steps[-1])) if len(steps) else 0
        steps, values, counts = steps[first:], values[first:], counts[first:]
        if not len(steps) or counts.min() == counts.max():
            return steps, values
        ends = np.cumsum(counts)[::-1]
        block = (ends[0] - ends) // counts.max()  # numbered from the newest, so that none there is incomplete
        starts = len(block) - 1 - np.flatnonzero(np.diff(block, append=-1))[::-1]
        size = np.add.reduceat(counts, starts)
        return np.add.reduceat(counts * steps, starts) / size, np.add.reduceat(counts * values, starts) / size

    def _takes_each(self, steps: Sequence[float]) -> bool:
        """Whether each of these steps follows the one before and is to be a block of its own, as most are."""
        if self._length > 1 or not len(steps) or self._closed_at != self._last:
            return False
        apart = steps[0] - self._last, *map(sub, steps[1:], steps)
        least = min(apart)
        return least > 0 and steps[-1] < 2 * self.resolution * least

    def _close(self) -> None:
        self._steps.append(self._step_sum / self._count)
        self._values.append(self._value_sum / self._count)
        self._counts.append(self._count)
        # the next block is judged by the spacing seen in this one; the first value of all says nothing about it
        spacing = (self._last - self._closed_at) / self._count
        self._length = _power_of_two(self._last / (self.resolution * spacing))
        self._closed_at, self._count, self._step_sum, self._value_sum = self._last, 0, 0.0, 0.0


def are_finite(values: Sequence[float]) -> bool:
    """Whether all of them are, and none is beyond LARGEST; NaN is seen in the sum alone."""
    return min(values) >= -LARGEST and max(values) <= LARGEST and not isnan(sum(values))


def _power_of_two(most: float) -> int:
    """The largest one that is at most this, but not less than 1."""
    return 1 << (frexp(max(most, 1.0))[1] - 1)
