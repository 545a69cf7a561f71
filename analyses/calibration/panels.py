"""Panels of many heads: how often find_events raises an event where heads share none, and finds the one they share.

A panel is 144 heads (12 layers of 12) of one probe on one schedule. In the nulls nothing happens at a time that heads
share, although each of them has what real heads have:

    rho .6, rho .9   smooth drifts of their own under autocorrelated noise
    shared noise     half of the variance of the noise is the same in all heads
    shared drift     all heads follow one smooth curve, each by an amount of its own
    private steps    every third head takes a step, each at its own time

In the others a share of the heads steps together: 30 % of them by 3 standard deviations of the noise, or 5 % by 6. What
is asked is an event within 25 % of that step, and which of the members it names did step.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd

import probes
from analyses.calibration.judge import Rate
from analyses.calibration.nulls import drift
from analyses.calibration.sampling import autoregressive, log_spaced, pythia, uniform
from analyses.calibration.shapes import Record, logistic
from probes.series.calibration import release_of

SEEDS = {"tuning": 61_003, "judging": 173_021}
"""Of panels alone. (137,911, the judging seed of single series, was used for an earlier release of find_events.)"""

LAYERS = HEADS = 12
NULLS = ("rho .6", "rho .9", "shared noise", "shared drift", "private steps")
POWERS = {"30 % by 3 sd": (0.3, 3.0), "5 % by 6 sd": (0.05, 6.0), "30 % by 6 sd": (0.3, 6.0)}
PANEL_SCHEDULES = {
    "log50": lambda: log_spaced(50),
    "pythia": pythia,
    "150 uniform": lambda: uniform(150),
    "30 uniform": lambda: uniform(30),
}
COUNTS = {"toy": (1, 1), "quick": (20, 8), "paper": (40, 15)}


@dataclass(frozen=True)
class PanelOutcome:
    """One judged panel: the steps of the events found, whether one is the true one, and its members."""

    what: str
    schedule: str
    rho: float
    values: int
    true_step: float | None
    steps: tuple[float, ...]
    members: int = 0
    right_members: int = 0

    @property
    def found(self) -> bool:
        """Whether an event lies at the true step, within 25 %."""
        return self.true_step is not None and any(abs(np.log(s / self.true_step)) <= 0.25 for s in self.steps if s > 0)


def draw_panel(what: str, steps: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float | None, np.ndarray]:
    """Values [heads, steps], the shared step if there is one, and which heads take it."""
    count, n, rho = LAYERS * HEADS, len(steps), 0.9 if what == "rho .9" else 0.6
    record = Record(steps)
    noise = autoregressive(rng.standard_normal((count, n)), rho)
    if what == "shared noise":
        noise = np.sqrt(0.5) * noise + np.sqrt(0.5) * autoregressive(rng.standard_normal((1, n)), rho)
    sizes = np.exp(rng.uniform(np.log(1), np.log(30), count))
    common = drift(record, rng).curve(steps)
    values = noise
    for k in range(count):
        clean = common if what == "shared drift" else drift(record, rng).curve(steps)
        values[k] += sizes[k] * (clean - clean.mean()) / max(np.ptp(clean), 1e-300)
    takes = np.zeros(count, dtype=bool)
    if what == "private steps":
        for k in np.flatnonzero(rng.random(count) < 1 / 3):
            values[k] += _step(steps, record.place(rng), rng) * rng.choice([-1, 1]) * rng.uniform(3, 8)
    if what not in POWERS:
        return values, None, takes
    share, height = POWERS[what]
    takes[rng.choice(count, max(1, round(share * count)), replace=False)] = True
    at = record.place(rng)
    sign = rng.choice([-1.0, 1.0])
    values[takes] += sign * height * _step(steps, at, rng)
    return values, at, takes


def _step(steps: np.ndarray, at: float, rng: np.random.Generator) -> np.ndarray:
    return logistic((steps - at) / (at * rng.uniform(0.03, 0.1)))


def table_of(values: np.ndarray, steps: np.ndarray) -> pd.DataFrame:
    """A tidy table as `probes.measure` makes it, of one circuit and one probe."""
    heads = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    count = len(heads)
    return pd.DataFrame(
        {
            "run": "panel",
            "step": np.tile(steps.astype(np.int64), count),
            "layer": np.repeat([layer for layer, _ in heads], len(steps)),
            "head": np.repeat([head for _, head in heads], len(steps)),
            "circuit": "ov",
            "probe": "norm",
            "component": pd.array([pd.NA] * count * len(steps), dtype="Int64"),
            "value": (values + 100).ravel(),  # a norm is above 0
            "why_missing": None,
        }
    )


def judge_panel(what: str, schedule: str, index: int, seeds: str = "judging") -> PanelOutcome:
    """Draw one panel and look for events in it."""
    rng = np.random.default_rng([SEEDS[seeds], crc32(f"panel/{what}/{schedule}".encode()), index])
    steps = np.unique(np.round(PANEL_SCHEDULES[schedule]()))
    values, at, takes = draw_panel(what, steps, rng)
    events = probes.find_events(table_of(values, steps))
    names = {f"{k // HEADS}.{k % HEADS}" for k in np.flatnonzero(takes)}
    pairs = zip(events["step"], events["members"], strict=True)
    members = [m for step, named in pairs if at and abs(np.log(step / at)) <= 0.25 for m in named]
    right = sum(str(member) in names for member in members)
    rho = 0.9 if what == "rho .9" else 0.6
    return PanelOutcome(what, schedule, rho, len(steps), at, tuple(map(float, events["step"])), len(members), right)


def run_panels(folder: Path, size: str, seeds: str = "judging") -> list[PanelOutcome]:
    """All panels, from the folder where they are there, else run now."""
    home = folder / release_of("events") / size / f"panels {seeds}"
    home.mkdir(parents=True, exist_ok=True)
    return [
        outcome for what, schedule, count in _cells(size) for outcome in _cell(home, (what, schedule, seeds), count)
    ]


def _cells(size: str) -> Iterator[tuple[str, str, int]]:
    nulls, powers = COUNTS[size]
    schedules = list(PANEL_SCHEDULES)[:1] if size == "toy" else list(PANEL_SCHEDULES)
    for schedule in schedules:
        yield from ((what, schedule, nulls) for what in (NULLS[:2] if size == "toy" else NULLS))
        yield from ((what, schedule, powers) for what in (list(POWERS)[:1] if size == "toy" else POWERS))


def _cell(home: Path, cell: tuple[str, str, str], count: int) -> list[PanelOutcome]:
    what, schedule, seeds = cell
    path = home / f"{what}--{schedule}.jsonl".replace(" ", "_").replace("%", "pc")
    if not path.exists():
        lines = [json.dumps(asdict(judge_panel(what, schedule, index, seeds))) for index in range(count)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    kept = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [PanelOutcome(**entry | {"steps": tuple(entry["steps"])}) for entry in kept]


def level(outcomes: Sequence[PanelOutcome]) -> Rate:
    """Panels without a shared event in which one was found."""
    nulls = [o for o in outcomes if o.what in NULLS]
    return Rate(sum(bool(o.steps) for o in nulls), len(nulls))


def power(outcomes: Sequence[PanelOutcome]) -> Rate:
    """Panels with one in which it was found."""
    shared = [o for o in outcomes if o.what in POWERS]
    return Rate(sum(o.found for o in shared), len(shared))


def member_precision(outcomes: Sequence[PanelOutcome]) -> Rate:
    """Of the members named: those that did step."""
    shared = [o for o in outcomes if o.what in POWERS]
    return Rate(sum(o.right_members for o in shared), sum(o.members for o in shared))
