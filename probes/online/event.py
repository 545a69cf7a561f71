"""What is announced while a run is still going on: a transition, when it happened, and when that was known."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """A transition found in a series that is still growing.

    step, low and high say where it happened as far as was known when it was announced, after `announced` updates;
    width how long it took, in steps (see `find_transitions`, which also says what half-drop + 1.1 width is).
    """

    series: str
    kind: str
    step: float
    low: float
    high: float
    announced: int
    strength: float
    p_value: float
    width: float = float("nan")

    @property
    def delay(self) -> float:
        """Updates between the transition and its announcement."""
        return self.announced - self.step

    def __str__(self) -> str:
        """One line for a log."""
        return (
            f"{self.kind} of {self.series} at step {self.step:.0f} [{self.low:.0f}, {self.high:.0f}], "
            f"announced at {self.announced}, p = {self.p_value:.1g}"
        )
