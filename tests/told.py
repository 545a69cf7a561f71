"""What a sink is told of a small run: events, measurements, all of it; and TensorBoard's own reader."""

import math
from pathlib import Path

import pandas as pd

from probes.measuring.tables import as_table
from probes.monitor.sinks import Sink
from probes.series.online import Event

EVENT = Event(
    metric="loss",
    kind="cliff",
    direction="fall",
    step=12.5,
    low=10.0,
    high=15.0,
    detected_at=20,
    strength=0.5,
    p_value=1e-4,
)


def event(step: int, detected_at: int | None = None) -> Event:
    """A cliff of the loss at a step; detected there, unless it is said when."""
    return Event(
        metric="loss",
        kind="cliff",
        direction="fall",
        step=step,
        low=step - 1,
        high=step + 1,
        detected_at=detected_at or step,
        strength=0.5,
        p_value=1e-6,
    )


def measurement(step: int, value: float = 1.0) -> pd.DataFrame:
    """Two heads of ov with an effective rank, and one of qk with a marginalized rank at k = 4."""
    return as_table(
        {
            "run": ["a, b"] * 3,
            "step": [step] * 3,
            "layer": [0, 0, 1],
            "head": [0, 1, 0],
            "circuit": ["ov", "ov", "qk"],
            "probe": ["effective_rank", "effective_rank", "marginalized_effective_rank"],
            "component": pd.array([None, None, 4], dtype="Int64"),
            "value": [value, value + 2, math.nan],
            "why_missing": [None, None, "zero\nmatrix"],
        },
        {"definitions": {"effective_rank": "Roy & Vetterli"}},
    )


def tell(sink: Sink, steps: range) -> None:
    """A run: a loss at every step, a measurement at every tenth, an event at step 20."""
    for step in steps:
        sink.scalars(step, {"loss": 1.0 / (step + 1)})
        if step % 10 == 0:
            sink.rows(measurement(step, float(step)))
        if step == EVENT.detected_at:
            sink.event(EVENT)


def accumulated(folder: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events
