"""Series that are still growing: kept in bounded memory, and watched for transitions as they happen."""

from probes.online.autocorrelation import OnlineAutocorrelation
from probes.online.detection import Detector
from probes.online.event import Event
from probes.online.record import Record

__all__ = ["Detector", "Event", "OnlineAutocorrelation", "Record"]
