"""A training run measured while it goes on: `probes.Monitor`, and where its numbers and checkpoints go."""

from probes.monitor.adaptive import AdaptiveCheckpoints
from probes.monitor.monitor import Monitor
from probes.monitor.sinks import Sink

__all__ = ["AdaptiveCheckpoints", "Monitor", "Sink"]
