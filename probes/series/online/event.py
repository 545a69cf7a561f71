"""What is detected while a run is still going on: a transition, when it happened, and when that was known."""

from dataclasses import dataclass

from probes.series.transitions.transition import Transition


@dataclass(frozen=True, kw_only=True)
class Event(Transition):
    """A transition of `metric`, a series that is still growing.

    step, low and high say where it happened as far as was known when it was announced, after `detected_at` updates;
    width how long it took, in steps (see `find_transitions`, which also says what half-drop + 1.1 width is).
    """

    metric: str
    detected_at: int

    @property
    def delay(self) -> float:
        """Updates between the transition and its announcement."""
        return self.detected_at - self.step

    def __str__(self) -> str:
        """One line for a log."""
        return (
            f"{self.kind} of {self.metric} at step {self.step:.0f} [{self.low:.0f}, {self.high:.0f}], "
            f"detected at {self.detected_at}, p = {self.p_value:.1g}"
        )
