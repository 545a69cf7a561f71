"""What a growing series knows, as plain data: written to JSON, read in another process, and everything goes on.

Settings (alpha, kinds, interventions) are not part of it: they are those of whoever goes on.
"""

import math
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np

from probes.series.online.alarms import Alarms
from probes.series.online.autocorrelation import OnlineAutocorrelation
from probes.series.online.detection import ALARMS, Detector, Event
from probes.series.online.record import Record
from probes.series.transitions.transition import Transition

_SETTINGS = frozenset({"metric", "alpha", "look_ratio", "fewest", "kinds", "diverges", "_interventions"})
_KINDS: dict[str, type] = {"event": Event, "transition": Transition}

_BY_VALUE = frozenset({"record", "alarms", "events"})

Series = Record | Detector | Alarms | OnlineAutocorrelation


def look_state(detector: Detector) -> dict[str, Any]:
    """What a detector learned by looking, as it is: neither its settings nor what comes with every value."""
    return {name: value for name, value in vars(detector).items() if name not in _SETTINGS | _BY_VALUE}


def apply_look(detector: Detector, state: dict[str, Any], events: Iterable[Event] = ()) -> None:
    """Bring to a detector what a look at a copy of it has learned, while it took in more values."""
    alarms = [row for row in detector._known if row.kind in ALARMS]
    vars(detector).update(state)
    detector._known += [row for row in alarms if row not in detector._known]
    detector.events += events


def state_of(series: Series) -> dict[str, Any]:
    """All that one holds but its settings, as lists, numbers and strings."""
    return {name: as_plain(value) for name, value in vars(series).items() if name not in _SETTINGS}


def restore(series: Series, state: dict[str, Any]) -> None:
    """Make one, newly made with its settings, what another was when its state was taken."""
    for name, value in state.items():
        if name in ("record", "alarms"):
            restore(getattr(series, name), value)
        else:
            setattr(series, name, from_plain(value))


def as_plain(value: Any) -> Any:
    """Anything that these classes hold, in what JSON has; numbers that it does not have as their names."""
    if isinstance(value, Record | Alarms):
        return state_of(value)
    if isinstance(value, Transition):
        kind = "event" if isinstance(value, Event) else "transition"
        return {kind: {name: as_plain(field) for name, field in asdict(value).items()}}
    if isinstance(value, array):
        return {"array": value.typecode, "bytes": _text(np.array(value))}
    if isinstance(value, np.ndarray):
        return {"numpy": str(value.dtype), "shape": list(value.shape), "bytes": _text(value)}
    if isinstance(value, np.generic):
        return as_plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, tuple):
        return {"tuple": [as_plain(one) for one in value]}
    if isinstance(value, list):
        return [as_plain(one) for one in value]
    if isinstance(value, dict):
        return {"dict": [[as_plain(key), as_plain(one)] for key, one in value.items()]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} cannot be kept as plain data")


def _text(values: np.ndarray) -> str:
    return b64encode(np.ascontiguousarray(values).tobytes()).decode()


def from_plain(value: Any) -> Any:
    """What `as_plain` was given."""
    if isinstance(value, list):
        return [from_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return array(value["array"], b64decode(value["bytes"]))
    if "numpy" in value:
        return np.frombuffer(b64decode(value["bytes"]), dtype=value["numpy"]).reshape(value["shape"]).copy()
    if "float" in value:
        return float(value["float"])
    if "tuple" in value:
        return tuple(from_plain(value["tuple"]))
    if "dict" in value:
        return {from_plain(key): from_plain(one) for key, one in value["dict"]}
    kind = next(iter(value))
    return _KINDS[kind](**{name: from_plain(field) for name, field in value[kind].items()})
