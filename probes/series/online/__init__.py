"""Series that are still growing: kept in bounded memory, and watched for transitions as they happen."""

from probes.series.online.autocorrelation import OnlineAutocorrelation
from probes.series.online.detection import ALARMS, KINDS, Detector, Event
from probes.series.online.record import Record

__all__ = ["ALARMS", "KINDS", "Detector", "Event", "OnlineAutocorrelation", "Record"]
