"""What plots draw of: a table of probes, or a run that is measured for it, as heads by steps of one probe."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float64

from checkpoints import Run
from probes.measuring.tables import COLUMNS

TableOrRun = pd.DataFrame | Run | str | Path
Head = str | tuple[int, int] | tuple[str, int, int]
"""By name: "1.0", "encoder:1.0"; or (layer, head), (tower, layer, head)."""

_USUAL = "effective_rank"


@dataclass(frozen=True, order=True)
class Row:
    """One circuit of one head."""

    tower: str
    layer: int
    head: int
    circuit: str

    @property
    def name(self) -> str:
        """As in the members of an event: "1.0", "encoder:1.0"."""
        return f"{self.tower}:{self.layer}.{self.head}" if self.tower else f"{self.layer}.{self.head}"

    @property
    def label(self) -> str:
        """With its circuit."""
        return f"{self.name} {self.circuit}"


@dataclass(frozen=True, eq=False)
class HeadSeries:
    """One probe of all heads of one run: values [step, row], NaN where there is none.

    condemned are the steps that the audit condemns, with the reason; reasons count, by circuit, why other numbers are
    missing.
    """

    run: str
    probe: str
    component: int | None
    unit: str
    step_unit: str
    steps: Float64[np.ndarray, " step"]
    rows: tuple[Row, ...]
    values: Float64[np.ndarray, "step row"]
    condemned: Mapping[int, str] = field(default_factory=dict)
    reasons: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The probe and its component, as in the names of panels."""
        return self.probe if self.component is None else f"{self.probe}.{self.component}"

    @property
    def label(self) -> str:
        """The name, and in which unit."""
        return f"{self.name.replace('_', ' ')} [{self.unit}]" if self.unit else self.name.replace("_", " ")

    @property
    def circuits(self) -> list[str]:
        """Those there are, in order."""
        return list(dict.fromkeys(row.circuit for row in self.rows))

    def panel(self, row: Row) -> str:
        """The name under which events know the panel that a row belongs to."""
        return ".".join(part for part in (row.tower, row.circuit, self.name) if part)

    def of_circuit(self, circuit: str | None) -> "HeadSeries":
        """The rows of one circuit, that given or the only one."""
        if circuit is None:
            circuit = self.circuits[0]
        if circuit not in self.circuits:
            raise ValueError(f"no circuit {circuit!r} has {self.name}; there are {', '.join(self.circuits)}")
        return self.taking([i for i, row in enumerate(self.rows) if row.circuit == circuit])

    @property
    def ranges(self) -> Float64[np.ndarray, " row"]:
        """Largest less smallest value of each row; NaN for one without numbers."""
        known = np.isfinite(self.values).any(0)
        spans = np.full(len(self.rows), np.nan)
        spans[known] = np.nanmax(self.values[:, known], axis=0) - np.nanmin(self.values[:, known], axis=0)
        return spans

    def taking(self, order: Sequence[int]) -> "HeadSeries":
        """Rows in this order."""
        kept = [int(i) for i in order]
        return HeadSeries(
            **{**self.__dict__, "rows": tuple(self.rows[i] for i in kept), "values": self.values[:, kept]}
        )

    def missing_said(self) -> list[str]:
        """What is not there, in sentences."""
        said = []
        if self.condemned:
            steps = ", ".join(f"{step:,}" for step in list(self.condemned)[:4]) + " …" * (len(self.condemned) > 4)
            said.append(f"Condemned by the audit, and without numbers: {self.step_unit} {steps}")
        reasons = sum((Counter(self.reasons.get(circuit, {})) for circuit in self.circuits), Counter())
        missing = reasons.total()
        if missing:
            reason, count = reasons.most_common(1)[0]
            of = f"{missing:,} of {self.values.size:,} numbers are missing"
            said.append(f"{of}, {count:,} because: {reason}" if len(reasons) > 1 else f"{of}: {reason}")
        return said


def as_numbers(column: object) -> Float64[np.ndarray, " step"]:
    """A column of metrics; NaN where there is no number."""
    return np.asarray(pd.to_numeric(pd.Series(column), errors="coerce"), dtype=np.float64)


def as_table(given: TableOrRun, probe: str | None) -> pd.DataFrame:
    """A table as it is; a run measured with one probe alone, the effective rank if none is named."""
    if isinstance(given, pd.DataFrame):
        lacking = [name for name in COLUMNS if name not in given.columns]
        if lacking:
            raise ValueError(
                f"this is not a table of probes: it lacks {', '.join(lacking)}. `probes.measure` makes one; a run, or "
                "the path of one, will do too"
            )
        return given
    from probes.measuring.catalogue import PROBES
    from probes.measuring.measure import measure

    wanted = probe or _USUAL
    base = next((name for name in (wanted, wanted.rpartition(".")[0]) if name in PROBES), wanted)
    return measure(given, probes=[base])


def read_heads(
    given: TableOrRun, probe: str | None = None, *, events: pd.DataFrame | None = None, run: str | None = None
) -> HeadSeries:
    """One probe of all heads. probe is its name, a component after a dot ("marginalized_effective_rank.4").

    Without one: that of the surest event in the weights, where there are events; else the effective rank, or the first.
    """
    table = as_table(given, probe)
    if table.empty:
        raise ValueError("the table has no numbers: nothing can be drawn")
    attrs = dict(table.attrs)
    names = [str(name) for name in table["run"].unique()]
    if run is None and len(names) > 1:
        raise ValueError(
            f"the table has the runs {', '.join(names)}: draw one, table[table['run'] == ...], or `probes.plot.compare`"
        )
    run = run or names[0]
    table = pd.DataFrame(table.loc[table["run"] == run])
    probe, component = _resolved(table, probe, events)
    rows = table.loc[table["probe"] == probe]
    rows = rows.loc[rows["component"].isna() if component is None else rows["component"] == component]
    keys = ["layer", "head", "circuit"]
    rows = rows.assign(tower=rows["tower"].fillna("") if "tower" in rows.columns else "")
    twice = rows.duplicated(["step", "tower", *keys])
    if twice.any():
        first = rows.loc[twice].iloc[0]
        raise ValueError(
            f"the table has {probe} more than once for run {run!r}, step {first['step']}, layer {first['layer']}, head "
            f"{first['head']}: stages that count their steps anew (draw one: table[table['stage'] == ...]), or two runs"
        )
    wide = rows.pivot(index="step", columns=["tower", *keys], values="value").sort_index()  # noqa: PD010
    order = {name: i for i, name in enumerate(dict.fromkeys(table["circuit"]))}
    towers = {name: i for i, name in enumerate(dict.fromkeys(rows["tower"]))}
    columns = sorted(wide.columns, key=lambda one: (towers[one[0]], order[one[3]], one[1], one[2]))
    wide = wide[columns].replace([np.inf, -np.inf], np.nan)
    condemned = {int(step): str(why) for step, why in attrs.get("condemned", {}).items() if int(step) in wide.index}
    missing = rows.loc[~np.isfinite(rows["value"]) & ~rows["step"].isin(list(condemned))]
    whys = zip(missing["circuit"], missing["why_missing"].fillna("not a finite number"), strict=True)
    reasons: dict[str, Counter[str]] = {name: Counter() for name in order}
    for circuit, why in whys:
        reasons[circuit][_without_numbers(str(why))] += 1
    definition = str(attrs.get("definitions", {}).get(probe, ""))
    unit = re.search(r"\[([^\]]*)\]", definition)
    return HeadSeries(
        run=run,
        probe=probe,
        component=component,
        unit=unit.group(1) if unit else "",
        step_unit=str(attrs.get("step_unit", "step")),
        steps=wide.index.to_numpy(dtype=np.float64),
        rows=tuple(Row(str(tower), int(layer), int(head), str(circuit)) for tower, layer, head, circuit in columns),
        values=wide.to_numpy(dtype=np.float64),
        condemned=condemned,
        reasons=reasons,
    )


def find_row(series: HeadSeries, head: Head) -> int:
    """Which row a head is, of series of one circuit."""
    name = head if isinstance(head, str) else ".".join(str(part) for part in head[-2:])
    if not isinstance(head, str) and len(head) == 3:
        name = f"{head[0]}:{name}"
    names = [row.name for row in series.rows]
    if name not in names:
        there = ", ".join(names[:6]) + " …" * (len(names) > 6)
        raise ValueError(f"no head {head!r} here: (layer, head), or its name as in {there}, is expected")
    return names.index(name)


def _resolved(table: pd.DataFrame, probe: str | None, events: pd.DataFrame | None) -> tuple[str, int | None]:
    there = [str(name) for name in table["probe"].unique()]
    component = None
    if probe is None:
        of_weights = events.loc[events["circuit"] != "metric"] if events is not None else None
        if of_weights is not None and len(of_weights):
            surest = of_weights.sort_values(["headline", "q_value"], ascending=[False, True]).iloc[0]
            probe = str(surest["probe"])
            component = None if pd.isna(surest["component"]) else int(surest["component"])
        if probe not in there:
            probe, component = (_USUAL if _USUAL in there else there[0]), None
    elif probe not in there:
        stem, _, last = probe.rpartition(".")
        if stem not in there or not last.isdigit():
            raise ValueError(f"the table has no probe {probe!r}; it has {', '.join(there)}")
        probe, component = stem, int(last)
    components = sorted(int(k) for k in table.loc[table["probe"] == probe, "component"].dropna().unique())
    if component is None and components:
        component = components[0]
    if component is not None and component not in components:
        raise ValueError(f"{probe} has no component {component}; it has {', '.join(map(str, components)) or 'none'}")
    return probe, component


def _without_numbers(reason: str) -> str:
    """Reasons that differ in their numbers alone count as one: "no checkpoint near step 3 …" """
    return re.sub(r"\d[\d.,]*", "…", reason).split(" = ")[0]
