"""A terminal view of a run that somebody else is writing: `probes watch RUN`. It only reads."""

from probes.watch.reader import Reader
from probes.watch.serve import ServedPage
from probes.watch.snapshot import Snapshot
from probes.watch.view import view
from probes.watch.watch import Polled, once, watch

__all__ = ["Polled", "Reader", "ServedPage", "Snapshot", "once", "view", "watch"]
