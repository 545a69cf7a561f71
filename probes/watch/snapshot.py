"""What is known of a run at one moment, for the view to show."""

from dataclasses import dataclass, field

import pandas as pd

from probes.series.online import Event
from probes.watch.head_curves import HeadCourse


@dataclass(frozen=True)
class Snapshot:
    """All of it may be missing: the run may not be there yet."""

    source: str
    state: str
    """Who is at work on it, in words."""
    read_at: float
    """When this was read, by `time.monotonic`."""
    name: str = ""
    family: str = ""
    last_step: int | None = None
    speed: str = ""
    left: str = ""
    """How long it will take yet, where it is known how many steps there will be."""
    written: float | None = None
    """When metrics were last written, in seconds since 1970."""
    latest: dict[str, tuple[int, float]] = field(default_factory=dict)
    main: str | None = None
    """The scalar to draw, and its course."""
    curve: list[tuple[float, float]] = field(default_factory=list)
    checkpoints: int = 0
    last_checkpoint: int | None = None
    table: pd.DataFrame | None = None
    """Rows of the latest measurement and the one before it."""
    table_source: str = ""
    heads: tuple[HeadCourse, ...] = ()
    """The course of every head, the one that went furthest first."""
    events: tuple[Event, ...] = ()
    events_source: str = ""
    problems: tuple[str, ...] = ()
    is_complete: bool = True
    """False while there is more to be read at once."""
