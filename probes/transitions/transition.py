"""One transition, as every finder reports it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Transition:
    """A row of the table of `find_transitions`, which says what the columns mean."""

    step: float
    low: float
    high: float
    kind: str
    strength: float
    p_value: float
    width: float
