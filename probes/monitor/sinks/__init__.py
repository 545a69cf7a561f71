"""Where the numbers of a monitored run go."""

from probes.monitor.sinks.sink import Sink

__all__ = ["Sink"]
