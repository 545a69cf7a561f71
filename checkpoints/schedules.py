"""Which steps to keep: each function returns ascending steps from 0 to `total`, both included."""

from collections.abc import Iterable

import numpy as np


def every(interval: int, total: int) -> tuple[int, ...]:
    """0, interval, 2 interval ... and the last step."""
    _positive(interval=interval, total=total)
    return _tidy(range(0, total, interval), total)


def log_spaced(total: int, count: int = 60) -> tuple[int, ...]:
    """About `count` steps, evenly spaced in the logarithm: dense early, where training is fast."""
    _positive(total=total, count=count)
    return _tidy(np.unique(np.round(np.geomspace(1, total, count)).astype(int)).tolist(), total)


def pythia(total: int) -> tuple[int, ...]:
    """Pythia's: 0, the powers of two up to 512, then every 1000 steps."""
    _positive(total=total)
    return _tidy([*(2**k for k in range(10)), *range(1000, total, 1000)], total)


def explicit(steps: Iterable[int], total: int) -> tuple[int, ...]:
    """Just these steps, with 0 and the last."""
    _positive(total=total)
    chosen = list(steps)
    outside = [step for step in chosen if not 0 <= step <= total]
    if outside:
        raise ValueError(f"steps {outside} lie outside a run of {total} steps")
    return _tidy(chosen, total)


def _tidy(steps: Iterable[int], total: int) -> tuple[int, ...]:
    return tuple(sorted({0, total, *(int(step) for step in steps if step <= total)}))


def _positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} is {number}: at least 1 is expected")
