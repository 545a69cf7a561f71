"""A table as panels: all heads of one circuit under one probe, as columns over the same steps.

A panel is what is tested once (`bursts`). It holds numbers only: a step at which more than a tenth of the heads have no
number is left out for all, a head that still lacks one is left out, and both are said. ln(value) where all values are
positive and within four decades, else the value. The same numbers twice, as the marginalized rank without anything
removed and the effective rank, are one panel; two heads with the same numbers are one series.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from jaxtyping import Float64, Int64

from probes.events.windows import Windows, searched, spread_out, windows_over
from probes.measuring.tables import COLUMNS

MOST_MISSING = 0.1
"""Share of the heads that may lack a number at a step for it to be kept."""

LARGEST_RATIO = 1e4
"""Largest over smallest value for logarithms to be taken."""

FEWEST = 20
"""Checkpoints: below this, what noise does cannot be told."""


@dataclass(frozen=True, eq=False)
class Panel:
    """All heads of one circuit under one probe.

    values [step, head] are logarithms where `is_log`; heads are (layer, head) by column. without are heads left out,
    with the reason; same_as are the heads whose numbers are those of a head that is kept; steps_left_out are counted by
    reason.
    """

    run: str
    stage: str | None
    tower: str | None
    circuit: str
    probe: str
    component: int | None
    steps: Int64[np.ndarray, " step"]
    values: Float64[np.ndarray, "step head"]
    heads: tuple[tuple[int, int], ...]
    is_log: bool = True
    without: Mapping[tuple[int, int], str] = field(default_factory=dict)
    same_as: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
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
        return np.array([layer for layer, _ in self.heads], dtype=np.int64)

    @property
    def windows(self) -> list[Windows]:
        """Through which it is looked at."""
        return windows_over(self.x)

    @property
    def searched(self) -> list[tuple[float, float]]:
        """The stretches of steps in which a burst would have places to be seen at."""
        return searched(self.windows)


def read_panels(table: pd.DataFrame) -> tuple[list[Panel], dict[str, str]]:
    """The panels of one run, and why others cannot be looked at, by name."""
    lacking = [name for name in COLUMNS if name not in table.columns]
    if lacking:
        raise ValueError(f"this is not a table of probes: it lacks {', '.join(lacking)}. `probes.measure` makes one")
    by = ["stage"] * _has_own_steps(table) + ["tower"] * ("tower" in table.columns)
    panels, refused = [], {}
    for key, rows in table.groupby([*by, "circuit", "probe", "component"], dropna=False, sort=False):
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


def _has_own_steps(table: pd.DataFrame) -> bool:
    """Whether there are stages that count their steps anew, so that a step stands for several checkpoints."""
    if "stage" not in table.columns:
        return False
    return bool(pd.DataFrame(table[["stage", "step"]]).drop_duplicates().duplicated("step").any())


def _filled(panel: Panel, rows: pd.DataFrame) -> Panel | str:
    """The panel with its numbers, or why it cannot be looked at."""
    if rows.duplicated(["step", "layer", "head"]).any():
        raise ValueError(
            f"the table has {panel.name} of run {panel.run!r} more than once at a step: tables of two runs with one "
            'name? Give each its own: table.assign(run="...")'
        )
    wide = rows.pivot(index="step", columns=["layer", "head"], values="value").sort_index()  # noqa: PD010
    wide = wide.sort_index(axis=1).replace([np.inf, -np.inf], np.nan)
    reasons = rows.loc[rows["value"].isna()].groupby("step")["why_missing"].first()
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
    heads = [(int(layer), int(head)) for layer, head in wide.columns]
    values, steps = wide.to_numpy(dtype=np.float64), wide.index.to_numpy(dtype=np.int64)
    without = {}
    for column, head in enumerate(heads):
        if np.isnan(values[:, column]).any():
            at = int(steps[np.isnan(values[:, column])][0])
            without[head] = f"no number at step {at}: {reasons.get(at, 'not a finite number')}"
        elif np.ptp(values[:, column]) == 0:
            without[head] = "it never changes"
    kept = [column for column, head in enumerate(heads) if head not in without]
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


def _without_same_heads(panel: Panel) -> Panel:
    """The panel with every series once."""
    seen: dict[bytes, tuple[int, int]] = {}
    same, kept = {}, []
    for column, head in enumerate(panel.heads):
        content = _content(panel.values[:, column])
        if content in seen:
            same[head] = seen[content]
        else:
            seen[content] = head
            kept.append(column)
    heads = tuple(panel.heads[column] for column in kept)
    return replace(panel, values=panel.values[:, kept], heads=heads, same_as=same)


def _without_doubles(panels: list[Panel], refused: dict[str, str]) -> list[Panel]:
    """Every panel once: first those without components, so that the plain name is the one that stays."""
    seen: dict[tuple[object, ...], str] = {}
    doubles = set()
    for panel in sorted(panels, key=lambda one: one.component is not None):
        content = panel.stage, panel.tower, panel.heads, panel.steps.tobytes(), _content(panel.values)
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
