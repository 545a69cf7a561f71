"""Series that are still growing: kept in bounded memory, and watched for transitions as they happen."""

from probes.online.event import Event

__all__ = ["Event"]
