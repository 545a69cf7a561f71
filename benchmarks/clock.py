"""Timing on noisy machines: the routes compared take turns, and each is judged by its best round or beside another.

The best round is for routes that take a fraction of a second, which find a quiet moment. A route of seconds seldom
does: there the ratio to another in the same round is taken, and of all rounds the median.
"""

import time
from collections.abc import Callable
from statistics import median


def best_of_turns(routes: dict[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Seconds of the fastest round of each route; all routes run once in every round."""
    return {name: min(seconds) for name, seconds in _turns(routes, rounds).items()}


def beside_the_first(routes: dict[str, Callable[[], object]], rounds: int = 9) -> dict[str, tuple[float, float]]:
    """Median seconds of each route, and the median over the rounds of its ratio to the first route."""
    turns = _turns(routes, rounds)
    first = next(iter(turns.values()))
    return {
        name: (median(seconds), median(a / b for a, b in zip(seconds, first, strict=True)))
        for name, seconds in turns.items()
    }


def _turns(routes: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every round."""
    for route in routes.values():
        route()  # once unmeasured: first calls set up thread pools and memory
    seconds: dict[str, list[float]] = {name: [] for name in routes}
    for _ in range(rounds):
        for name, route in routes.items():
            start = time.perf_counter()
            route()
            seconds[name].append(time.perf_counter() - start)
    return seconds
