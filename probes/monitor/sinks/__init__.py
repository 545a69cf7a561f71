"""Where the numbers of a monitored run go. Libraries of trackers are imported when their sink is made, not before."""

from probes.monitor.sinks.csv import CSV
from probes.monitor.sinks.named import Sinks, checked_sinks, made_sinks
from probes.monitor.sinks.parquet import Parquet
from probes.monitor.sinks.run_directory import RunDirectory
from probes.monitor.sinks.sink import Sink
from probes.monitor.sinks.tensorboard import TensorBoard
from probes.monitor.sinks.trackio import Trackio
from probes.monitor.sinks.wandb import WandB

__all__ = [
    "CSV",
    "Parquet",
    "RunDirectory",
    "Sink",
    "Sinks",
    "TensorBoard",
    "Trackio",
    "WandB",
    "checked_sinks",
    "made_sinks",
]
