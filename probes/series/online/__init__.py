"""Series that are still growing: kept in bounded memory, and watched for transitions as they happen."""

from probes.series.online.autocorrelation import OnlineAutocorrelation
from probes.series.online.detection import ALARMS, BY_BLOCKS, FEWEST_ENTRIES, KINDS, SHORT_RATIO, Detector, Event
from probes.series.online.record import Record

__all__ = [
    "ALARMS",
    "BY_BLOCKS",
    "FEWEST_ENTRIES",
    "KINDS",
    "SHORT_RATIO",
    "Detector",
    "Event",
    "OnlineAutocorrelation",
    "Record",
]
