"""A table as panels: all heads of one circuit under one probe, as columns over the same steps.

A panel is what is tested once (`bursts`). Matrices that are no heads (embed, unembed, mlp_in, mlp_out ...) are few of
each kind, one per layer or one per model: all of them under one probe are one panel, called "matrices".

A panel holds numbers only: a head without a number at more than half of the steps is left out, then a step at which
more than a tenth of the heads have none is left out for all, then a head that still lacks one; all are said. ln(value)
where all values are positive and within four decades, else the value. The same numbers twice, as the marginalized rank
without anything removed and the effective rank, are one panel; two heads with the same numbers are one series.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64

from probes.events.windows import Windows, searched, spread_out, windows_over
from probes.measuring.tables import COLUMNS

MOST_MISSING = 0.1
"""Share of the heads that may lack a number at a step for it to be kept."""

MOST_STEPS_MISSING = 0.5
"""Share of the steps at which a head may lack a number for it to be kept."""

LARGEST_RATIO = 1e4
"""Largest over smallest value for logarithms to be taken."""

FEWEST = 20
"""Checkpoints: below this, what noise does cannot be told."""


MATRICES = "matrices"
"""What the circuit of a panel is called that holds the matrices of a model which are no heads."""


_SERIES = ["circuit", "layer", "head"]


class Series(NamedTuple):
    """Which head, or which matrix, a column is about. name is "layer.head", or "embed", "mlp_in.3" of a matrix."""

    circuit: str
    layer: int
    head: int
    name: str


@dataclass(frozen=True, eq=False)
class Panel:
    """All heads of one circuit under one probe, or all matrices that are no heads.

    values [step, head] are logarithms where `is_log`; heads says what each column is about. without are heads left out,
    with the reason; same_as are the heads whose numbers are those of a head that is kept, both by name; steps_left_out
    are counted by reason.
    """

    run: str
    stage: str | None
    tower: str | None
    circuit: str
    probe: str
    component: int | None
    steps: Int64[np.ndarray, " step"]
    values: Float64[np.ndarray, "step head"]
    heads: tuple[Series, ...]
    is_log: bool = True
    without: Mapping[str, str] = field(default_factory=dict)
    same_as: Mapping[str, str] = field(default_factory=dict)
    steps_left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Such as "qk.effective_rank" or "ov.marginalized_effective_rank.4"; with the tower and stage where needed."""
        parts = [self.stage, self.tower, self.circuit, self.probe]
        parts.append(None if self.component is None else str(self.component))
        return ".".join(part for part in parts if part is not None)

    @property
    def x(self) -> Float64[np.ndarray, " step"]:
        """ln(step)."""
        return np.log(self.steps.astype(np.float64))

    @property
    def layers(self) -> Int64[np.ndarray, " head"]:
        """The layer of each column."""
        return np.array([one.layer for one in self.heads], dtype=np.int64)

    @property
    def windows(self) -> list[Windows]:
        """Through which it is looked at."""
        return windows_over(self.x)

    @property
    def searched(self) -> list[tuple[float, float]]:
        """The stretches of steps in which a burst would have places to be seen at."""
        return searched(self.windows)


def head_called(name: str) -> str:
    """ "head 3.1", or "matrix embed"."""
    return f"head {name}" if name[:1].isdigit() else f"matrix {name}"


def read_panels(table: pd.DataFrame) -> tuple[list[Panel], dict[str, str]]:
    """The panels of one run, and why others cannot be looked at, by name."""
    lacking = [name for name in COLUMNS if name not in table.columns]
    if lacking:
        raise ValueError(f"this is not a table of probes: it lacks {', '.join(lacking)}. `probes.measure` makes one")
    by = ["stage"] * _has_own_steps(table) + ["tower"] * ("tower" in table.columns)
    panels, refused = [], {}
    table = table.assign(panel=_panel_names(table))
    for key, rows in table.groupby([*by, "panel", "probe", "component"], dropna=False, sort=False):
        *places, circuit, probe, component = tuple(key)  # pyright: ignore[reportArgumentType]
        named = dict(zip(by, (None if pd.isna(place) else str(place) for place in places), strict=True))
        panel = Panel(
            run=str(rows["run"].iloc[0]),
            stage=named.get("stage"),
            tower=named.get("tower"),
            circuit=str(circuit),
            probe=str(probe),
            component=None if pd.isna(component) else int(component),
            steps=np.empty(0, dtype=np.int64),
            values=np.empty((0, 0)),
            heads=(),
        )
        filled = _filled(panel, rows)
        if isinstance(filled, str):
            refused[panel.name] = filled
        else:
            panels.append(filled)
    return _without_doubles(panels, refused), refused


def _panel_names(table: pd.DataFrame) -> pd.Series:
    """The circuit, or `MATRICES` for what has one matrix per layer and is no circuit of heads."""
    heads = pd.Series(table.groupby("circuit")["head"].max())
    alone = [str(name) for name, last in heads.items() if last == 0 and not str(name).startswith(("ov", "qk"))]
    circuits = pd.Series(table["circuit"])
    return circuits.where(~circuits.isin(alone), MATRICES) if len(alone) > 1 else circuits


def _has_own_steps(table: pd.DataFrame) -> bool:
    """Whether there are stages that count their steps anew, so that a step stands for several checkpoints."""
    if "stage" not in table.columns:
        return False
    return bool(pd.DataFrame(table[["stage", "step"]]).drop_duplicates().duplicated("step").any())


def _filled(panel: Panel, rows: pd.DataFrame) -> Panel | str:
    """The panel with its numbers, or why it cannot be looked at."""
    if rows.duplicated(["step", *_SERIES]).any():
        raise ValueError(
            f"the table has {panel.name} of run {panel.run!r} more than once at a step: tables of two runs with one "
            'name? Give each its own: table.assign(run="...")'
        )
    wide = rows.pivot(index="step", columns=_SERIES, values="value").sort_index()  # noqa: PD010
    wide = wide.sort_index(axis=1).replace([np.inf, -np.inf], np.nan)
    missing = rows.loc[rows["value"].isna()]
    wide, without = _without_rare(_named(wide, panel.circuit == MATRICES), missing)
    reasons = missing.groupby("step")["why_missing"].first()
    left_out: dict[str, int] = {}
    scarce = wide.index[wide.isna().mean(axis=1) > MOST_MISSING]
    for step in scarce:
        reason = str(reasons.get(step, "not a finite number"))
        left_out[reason] = left_out.get(reason, 0) + 1
    wide = wide.drop(index=scarce)
    positive = wide.index.to_numpy(dtype=np.int64) > 0
    if not positive.all():
        left_out["step 0 has no logarithm"] = int((~positive).sum())
        wide = wide.loc[positive]
    if len(wide) < FEWEST:
        why = f"; {len(scarce)} left out, the first reason: {next(iter(left_out))}" if len(scarce) else ""
        return f"{len(wide)} checkpoints with numbers, {FEWEST} are needed{why}"
    heads: list[Series] = wide.columns.tolist()
    values, steps = wide.to_numpy(dtype=np.float64), wide.index.to_numpy(dtype=np.int64)
    for column, head in enumerate(heads):
        if np.isnan(values[:, column]).any():
            at = int(steps[np.isnan(values[:, column])][0])
            without[head.name] = f"no number at step {at}: {reasons.get(at, 'not a finite number')}"
        elif np.ptp(values[:, column]) == 0:
            without[head.name] = "it never changes"
    kept = [column for column, head in enumerate(heads) if head.name not in without]
    if not kept:
        return f"no head has numbers that change at all steps; the first: {next(iter(without.values()))}"
    spread = spread_out(np.log(steps.astype(np.float64)))
    if len(spread) < len(steps):
        left_out["next to another checkpoint, far nearer than usual"] = len(steps) - len(spread)
    values, steps = values[spread][:, kept], steps[spread]
    is_log = bool((values > 0).all() and values.max() < LARGEST_RATIO * values.min())
    found = replace(
        panel,
        steps=steps,
        values=np.log(values) if is_log else values,
        heads=tuple(heads[column] for column in kept),
        is_log=is_log,
        without=without,
        steps_left_out=left_out,
    )
    if not found.windows:
        return f"{len(steps)} checkpoints, too far apart in ln(step): no place has speeds before, at and after it"
    return _without_same_heads(found)


def _named(wide: pd.DataFrame, are_matrices: bool) -> pd.DataFrame:
    """The columns as `Series`: a matrix is called after its circuit, with its layer where there are several."""
    keys = [(str(circuit), int(layer), int(head)) for circuit, layer, head in wide.columns]
    count = Counter(circuit for circuit, _, _ in keys)
    wide = wide.copy()
    wide.columns = pd.Index(
        [
            Series(c, layer, head, (c if count[c] == 1 else f"{c}.{layer}") if are_matrices else f"{layer}.{head}")
            for c, layer, head in keys
        ],
        tupleize_cols=False,
    )
    return wide


def _without_rare(wide: pd.DataFrame, missing: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Without the heads that have few numbers, and why these have none; all of them where all have few."""
    is_rare = (wide.isna().mean(axis=0) > MOST_STEPS_MISSING).to_numpy()
    if not is_rare.any() or is_rare.all():
        return wide, {}
    reasons = missing.groupby(_SERIES)["why_missing"].agg(lambda texts: texts.value_counts(dropna=False).index[0])
    rare = [one for one, is_so in zip(wide.columns, is_rare, strict=True) if is_so]
    why = {one.name: str(reasons.get((one.circuit, one.layer, one.head), "not a finite number")) for one in rare}
    return wide.loc[:, ~is_rare], why


def _without_same_heads(panel: Panel) -> Panel:
    """The panel with every series once."""
    seen: dict[bytes, str] = {}
    same, kept = {}, []
    for column, head in enumerate(panel.heads):
        content = _content(panel.values[:, column])
        if content in seen:
            same[head.name] = seen[content]
        else:
            seen[content] = head.name
            kept.append(column)
    heads = tuple(panel.heads[column] for column in kept)
    return replace(panel, values=panel.values[:, kept], heads=heads, same_as=same)


def _without_doubles(panels: list[Panel], refused: dict[str, str]) -> list[Panel]:
    """Every panel once: first those without components, so that the plain name is the one that stays."""
    seen: dict[tuple[object, ...], str] = {}
    doubles = set()
    for panel in sorted(panels, key=lambda one: one.component is not None):
        heads = tuple((one.layer, one.head) for one in panel.heads)
        content = panel.stage, panel.tower, heads, panel.steps.tobytes(), _content(panel.values)
        if content in seen:
            refused[panel.name] = f"the same numbers as {seen[content]}, which are counted once"
            doubles.add(panel.name)
        else:
            seen[content] = panel.name
    return [panel for panel in panels if panel.name not in doubles]


def _content(values: np.ndarray) -> bytes:
    """Equal for the same numbers, up to rounding."""
    mantissas, exponents = np.frexp(values)
    return np.round(mantissas, 9).tobytes() + exponents.tobytes()
