"""What a page knows, as plain values: the files beside this one fill it; the template and, as JSON, the app read it.

    Page        the whole file: its runs, what every number means, how it was made
    RunData     one run: checkpoints, rows, series, events, what could not be looked at
    Row         one matrix that was measured: tower, layer, head, circuit
    Series      one probe (and component) of all rows over all shown checkpoints, packed (`packing`)
    EventData   one event with its findings, in words and numbers
    Band        another run, or all heads: quantiles of a series over heads, drawn behind the curves
    Figure      a small curve of its own: autocorrelation of the loss, curvature of norms, modes of a theory

Indices are places in lists: a column is a place in `RunData.steps`, a row one in `RunData.rows`, a series one in
`RunData.series`. Nothing here holds HTML; whoever shows a text escapes it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from probes.reporting.comparison_data import Comparison
from probes.reporting.packing import Packed


@dataclass(frozen=True)
class Row:
    """One matrix: of a head, or of a layer where there are no heads."""

    circuit: str
    layer: int
    head: int
    tower: str = ""

    @property
    def head_name(self) -> str:
        """As events name it: "1.0", "encoder:1.0"."""
        return f"{self.tower}:{self.layer}.{self.head}" if self.tower else f"{self.layer}.{self.head}"


@dataclass(frozen=True)
class Series:
    """One probe of all rows. searched: by circuit, the stretches of steps in which a change could have been seen."""

    name: str
    probe: str
    component: int | None
    meaning: str
    values: Packed
    searched: Mapping[str, Sequence[tuple[float, float]]]
    not_searched: Mapping[str, str]
    nulls: Sequence["Null"] = ()


@dataclass(frozen=True)
class Null:
    """What a series would show by chance, for rows of one circuit."""

    circuit: str
    level: float
    sentence: str


@dataclass(frozen=True)
class FindingData:
    """One probe or metric that takes part in an event."""

    name: str
    is_metric: bool
    step: float
    low: float
    high: float
    what: str
    strength: float
    q_value: float
    rests_on: str
    heads: Sequence[str]


@dataclass(frozen=True)
class EventData:
    """One event. rows are those of the heads that take part; series the one it is named after, None for a metric."""

    number: int
    step: float
    low: float
    high: float
    title: str
    sentence: str
    says: str
    """The sentence without its step."""
    circuit: str
    heads: Sequence[str]
    rows: Sequence[int]
    series: int | None
    q_value: float
    shared: bool | None
    headline: bool
    findings: Sequence[FindingData]
    first: str
    """Who moved first, where that can be told, or why it cannot."""


@dataclass(frozen=True)
class Band:
    """Quantiles over the heads of one run, by series and circuit ("norm|ov"): three packed rows, .1, .5 and .9."""

    run: str
    role: str
    steps: Sequence[int]
    quantiles: Mapping[str, Packed]


@dataclass(frozen=True)
class Line:
    """One curve of a figure."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False


@dataclass(frozen=True)
class Figure:
    """A small figure over log steps; marks are places of note (peaks), with what they are."""

    key: str
    title: str
    sentence: str
    y_name: str
    lines: Sequence[Line]
    marks: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True)
class Missing:
    """Why series at a column has no number in these rows; all of them where rows is empty."""

    series: int
    column: int
    reason: int
    rows: Sequence[int] = ()


@dataclass(frozen=True)
class RunData:
    """One run and what was found in it. total is how many checkpoints it has; steps are those that are shown."""

    name: str
    source: str
    facts: Sequence[tuple[str, str]]
    step_unit: str
    total: int
    steps: Sequence[int]
    condemned: Mapping[int, str]
    """By step."""
    audit: str
    faults: Sequence[tuple[int, str, str, str]]
    """Step, verdict, fault, evidence."""
    rows: Sequence[Row] = ()
    series: Sequence[Series] = ()
    modes: Mapping[str, Packed] = field(default_factory=dict)
    """By name of the probe, [row * component, step]."""
    missing: Sequence[Missing] = ()
    reasons: Sequence[str] = ()
    events: Sequence[EventData] = ()
    tests: int = 0
    searched: tuple[float, float] | None = None
    """The first and last step at which some panel of the weights could be searched."""
    searched_metrics: tuple[float, float] | None = None
    """The same of metrics."""
    refused: int = 0
    """How many panels and metrics could be searched nowhere."""
    not_looked_at: Sequence[str] = ()
    """Sentences: what could not be searched, what was left out."""
    figures: Sequence[Figure] = ()
    not_drawn: Sequence[str] = ()
    """Sentences: which figures are not there, and why."""
    metrics: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    interventions: Sequence[float] = ()


@dataclass(frozen=True)
class Definition:
    """A probe, what it means, and what it must not be taken for."""

    name: str
    meaning: str
    cannot_tell: str


@dataclass(frozen=True)
class Page:
    """The whole file. runs[0] is what the map and curves show; bands are those behind them."""

    title: str
    runs: Sequence[RunData]
    bands: Sequence[Band]
    definitions: Sequence[Definition]
    calibration: Sequence[Mapping[str, Any]]
    """The rows of the calibration that findings rest on."""
    versions: Mapping[str, str]
    command: str
    alpha: float
    controls: Sequence[str] = ()
    apart: str = ""
    """What sets several runs apart from several controls, in words."""
    comparison: Comparison | None = None
    """Of several runs, or a run and controls."""


def as_json(page: Page) -> str:
    """The page for the app: no number that JSON has not, nothing that could end a script element."""
    text = json.dumps(_plain(page), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(value: Any) -> Any:
    """Values as JSON has them; numbers that are not finite as null."""
    names = getattr(value, "__dataclass_fields__", None)
    if names is not None:
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return float(f"{value:.9g}") if abs(value) < float("inf") else None
    return [_plain(one) for one in value]
