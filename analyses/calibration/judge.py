"""One series and a detector: what it said, beside what is true. And many of them: rates with their intervals.

A detector is a function of a `Case` that returns rows as `find_transitions` does (`step, low, high, kind, direction,
strength, p_value`), with `.attrs["searched"]` if it says where it looked. Without a column `direction` every row is
taken for a fall. Rows of kind settled count for nothing, neither do those a shape allows.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isnan

import numpy as np
import pandas as pd

from analyses.calibration.cells import Case
from analyses.calibration.evidence import evidence
from analyses.calibration.truth import Truth, matches, visible_truths

Detector = Callable[[Case], pd.DataFrame]

TRANSITIONS = ("cliff", "stage", "dip")
"""Kinds of rows that claim that something happened in training."""


@dataclass(frozen=True)
class Row:
    """One row of a detector, as it is kept."""

    step: float
    low: float
    high: float
    kind: str
    direction: str
    p_value: float


@dataclass(frozen=True)
class Outcome:
    """One judged series. refused is the detector's own reason for not looking, "" if it looked.

    evidence is how strong that for every cliff and stage is (see `evidence.py`); NaN for a dip.
    """

    cell: str
    index: int
    family: str
    noise: str
    memory: float
    size: float
    values: int
    truths: tuple[Truth, ...]
    visible: tuple[bool, ...]
    allowed: tuple[str, ...]
    rows: tuple[Row, ...]
    searched: tuple[tuple[float, float], ...] | None
    refused: str = ""
    lowest_p: float = float("nan")
    first: float = float("nan")
    last: float = float("nan")
    evidence: tuple[float, ...] = ()

    @property
    def schedule(self) -> str:
        """The second word of the cell."""
        return self.cell.split("/")[1]

    @property
    def claims(self) -> tuple[Row, ...]:
        """What the detector says happened, without what the shape allows."""
        return tuple(
            row
            for row in self.rows
            if row.kind in TRANSITIONS and row.kind not in self.allowed and row.direction not in self.allowed
        )

    def paired(self) -> list[tuple[Truth, Row | None, bool]]:
        """Every truth with the row that names it, if one does, and whether it is visible. A row serves one truth.

        A dip is named by a dip, anything else by a cliff or a stage in its direction.
        """
        left, pairs = list(self.claims), []
        for truth, seen in zip(self.truths, self.visible, strict=True):
            kinds = ("dip",) if truth.kind == "dip" else ("cliff", "stage")
            fit = [r for r in left if r.kind in kinds and matches(truth, r.step)]
            fit = [r for r in fit if r.kind == "dip" or r.direction == truth.direction]
            row = min(fit, key=lambda r: abs(np.log(max(r.step, 1e-9) / truth.time))) if fit else None
            if row:
                left.remove(row)
            pairs.append((truth, row, seen))
        return pairs

    def with_findings(self, findings: Sequence[tuple[float, str]]) -> "Outcome":
        """The same series as a peer sees it: steps and directions, no intervals."""
        nan = float("nan")
        rows = tuple(Row(step, nan, nan, "cliff", direction, nan) for step, direction in findings)
        return replace(self, rows=rows, searched=None, refused="")

    def as_dict(self) -> dict:
        """For JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(kept: dict) -> "Outcome":
        """From JSON."""
        searched = kept["searched"]
        return Outcome(
            **kept
            | {
                "truths": tuple(Truth(**truth) for truth in kept["truths"]),
                "visible": tuple(kept["visible"]),
                "evidence": tuple(kept.get("evidence", [float("nan")] * len(kept["truths"]))),
                "allowed": tuple(kept["allowed"]),
                "rows": tuple(Row(**row) for row in kept["rows"]),
                "searched": None if searched is None else tuple((low, high) for low, high in searched),
            }
        )


def judge(case: Case, detector: Detector) -> Outcome:
    """Run a detector on one series."""
    refused, rows, searched = "", (), None
    try:
        table = detector(case)
    except ValueError as error:  # too few values, say: it could not look, which is not that nothing happens
        refused = str(error)
    else:
        rows, searched = _rows(table), _searched(table)
    p_values = [row.p_value for row in rows if row.kind in TRANSITIONS and not isnan(row.p_value)]
    visible = visible_truths(case.shape, case.steps, case.noise)
    return Outcome(
        cell=case.cell,
        index=case.index,
        family=case.shape.family,
        noise=case.noise.kind,
        memory=case.noise.memory,
        size=case.noise.size,
        values=len(case.steps),
        truths=case.shape.truths,
        visible=tuple(truth in visible for truth in case.shape.truths),
        allowed=case.shape.allowed,
        rows=rows,
        searched=searched,
        refused=refused,
        lowest_p=min(p_values, default=float("nan")),
        first=float(case.steps[0]),
        last=float(case.steps[-1]),
        evidence=tuple(
            float("nan") if t.kind == "dip" else evidence(t, case.shape, case.steps, case.noise)
            for t in case.shape.truths
        ),
    )


def _rows(table: pd.DataFrame) -> tuple[Row, ...]:
    directions = table["direction"] if "direction" in table else ["fall"] * len(table)
    columns = zip(*(table[name] for name in ("step", "low", "high", "kind")), directions, table["p_value"], strict=True)
    return tuple(Row(float(s), float(a), float(b), str(k), str(d), float(p)) for s, a, b, k, d, p in columns)


def _searched(table: pd.DataFrame) -> tuple[tuple[float, float], ...] | None:
    stretches = table.attrs.get("searched")
    if stretches is None:
        return None
    return tuple((float(low), float(high)) for low, high in np.asarray(stretches, dtype=float).reshape(-1, 2))


# Rates


@dataclass(frozen=True)
class Rate:
    """So many of so many, with the 95 % interval of Clopper and Pearson."""

    hits: int
    of: int
    low: float = field(init=False)
    high: float = field(init=False)

    def __post_init__(self) -> None:
        from scipy.stats import beta

        low = beta.ppf(0.025, self.hits, self.of - self.hits + 1) if self.hits else 0.0
        high = beta.ppf(0.975, self.hits + 1, self.of - self.hits) if self.hits < self.of else 1.0
        object.__setattr__(self, "low", float(low))
        object.__setattr__(self, "high", float(high))

    @property
    def value(self) -> float:
        """The share; NaN of nothing."""
        return self.hits / self.of if self.of else float("nan")

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]" if self.of else "none"


def false_alarms(outcomes: Iterable[Outcome], kinds: Sequence[str] = TRANSITIONS) -> Rate:
    """Of the series that were looked at and in which nothing happens: those with a claim of one of these kinds."""
    looked = [o for o in outcomes if not o.refused]
    return Rate(sum(any(row.kind in kinds for row in o.claims) for o in looked), len(looked))


def recall(outcomes: Iterable[Outcome], *, kinds: Sequence[str] = TRANSITIONS, visible: bool = True) -> Rate:
    """Of the (visible) transitions: those named. A refused series misses all of its."""
    pairs = [(t, row) for o in outcomes for t, row, seen in o.paired() if (seen or not visible) and t.kind in kinds]
    return Rate(sum(row is not None for _, row in pairs), len(pairs))


def recall_by_evidence(outcomes: Iterable[Outcome], least: float, most: float) -> Rate:
    """Of the visible cliffs and stages whose evidence is from least up to most standard errors: those named."""
    pairs = [
        row
        for o in outcomes
        for (_, row, seen), size in zip(o.paired(), o.evidence, strict=True)
        if seen and least <= size < most
    ]
    return Rate(sum(row is not None for row in pairs), len(pairs))


def precision(outcomes: Iterable[Outcome]) -> Rate:
    """Of the claims in series in which something happens: those that name something, each thing once."""
    outcomes = list(outcomes)
    right = sum(row is not None for o in outcomes for _, row, _ in o.paired())
    return Rate(right, sum(len(o.claims) for o in outcomes))


def coverage(outcomes: Iterable[Outcome]) -> Rate:
    """Of the transitions named: those whose time lies in the row's interval."""
    named = [(truth, row) for o in outcomes for truth, row, _ in o.paired() if row]
    return Rate(sum(row.low <= truth.time <= row.high for truth, row in named), len(named))


def timing_errors(outcomes: Iterable[Outcome]) -> np.ndarray:
    """|ln(step / true time)| of the transitions named."""
    named = [(truth, row) for o in outcomes for truth, row, _ in o.paired() if row]
    return np.array([abs(np.log(max(row.step, 1e-9) / truth.time)) for truth, row in named])


def inside_searched(outcome: Outcome, truth: Truth) -> bool:
    """Whether a transition lies where the detector says it would have seen one; the whole record if it says nothing."""
    if outcome.refused:
        return False
    stretches = outcome.searched if outcome.searched is not None else ((outcome.first, outcome.last),)
    return any(low <= truth.time <= high for low, high in stretches)
