"""Finding the transitions of one noisy series: `find_transitions`."""

from probes.series.transitions.find import find_transitions

__all__ = ["find_transitions"]
