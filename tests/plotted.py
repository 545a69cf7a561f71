"""Small tables, events and runs to draw, and what can be read off a picture: its words."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from probes.events.event_table import COLUMNS as EVENT_COLUMNS
from probes.measuring.tables import as_table


def table_of(
    heads: Sequence[tuple[int, int]] = ((0, 0), (0, 1), (1, 0)),
    steps: Sequence[int] = (0, 1, 10, 100, 1000),
    *,
    circuits: Sequence[str] = ("ov", "qk"),
    value: Callable[[int, int, int], float] = lambda layer, head, step: 1.0 + layer + 2 * head + np.log1p(step),
    run: str = "mine",
    probe: str = "effective_rank",
    **attrs: object,
) -> pd.DataFrame:
    """One probe of some heads; what is not finite is missing because "the head is zero"."""
    rows = []
    for step in steps:
        for circuit in circuits:
            for layer, head in heads:
                number = float(value(layer, head, step))
                why = None if np.isfinite(number) else "the head is zero"
                rows.append((run, step, layer, head, circuit, probe, pd.NA, number, why))
    names = ("run", "step", "layer", "head", "circuit", "probe", "component", "value", "why_missing")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return as_table(columns, {"definitions": {probe: "exp H [directions]"}, "step_unit": "step", **attrs})


def events_of(*events: dict, searched: dict | None = None, not_searched: dict | None = None) -> pd.DataFrame:
    """Events as `find_events` gives them, each {run, step, low, high, name, members, headline}; name: circuit.probe."""
    rows, findings, members = [], [], []
    for number, given in enumerate(events):
        one = {"run": "mine", "headline": True, "members": [], "direction": "rise", "kind": "stage", **given}
        is_metric = "." not in one["name"]
        circuit, probe = ("metric", one["name"]) if is_metric else one["name"].split(".", 1)
        numbers = {"strength": 0.5, "p_value": 1e-4, "q_value": 1e-3, "rests_on": "none"}
        place = {key: one[key] for key in ("run", "step", "low", "high", "kind", "direction", "members")}
        rows.append({**place, **numbers, "circuit": circuit, "probe": probe, "component": pd.NA, "together_with": [],
                     "shared_with_controls": pd.NA, "headline": one["headline"]})  # fmt: skip
        findings.append({**place, **numbers, "event": number, "name": one["name"], "is_metric": is_metric,
                         "is_resolved": False, "order": "", "shared_with_controls": pd.NA})  # fmt: skip
        for name in one["members"]:
            layer, head = map(int, name.split("."))
            members.append({"event": number, "run": one["run"], "circuit": circuit, "probe": probe, "component": None,
                            "tower": None, "layer": layer, "head": head, "name": name, "takes_part": True})  # fmt: skip
    table = pd.DataFrame(rows, columns=list(EVENT_COLUMNS)).astype(EVENT_COLUMNS)
    names = ["event", "run", "name", "is_metric", "step", "low", "high", "kind", "direction", "members", "q_value"]
    names += ["strength", "p_value", "rests_on", "is_resolved", "order", "shared_with_controls"]
    table.attrs["findings"] = pd.DataFrame(findings, columns=names)
    names = ["event", "run", "circuit", "probe", "component", "tower", "layer", "head", "name", "takes_part"]
    table.attrs["members"] = pd.DataFrame(members, columns=names)
    table.attrs["furthest"] = pd.DataFrame(columns=["event", "run", "tower", "name", "way"])
    table.attrs["searched"] = searched if searched is not None else {"ov.effective_rank": [(1.0, 1000.0)]}
    table.attrs["not_searched"] = not_searched or {}
    table.attrs["tests"] = {
        str(run): 1 for run in dict.fromkeys([one.get("run", "mine") for one in events] or ["mine"])
    }
    table.attrs |= {"alpha": 0.01, "notes": [], "controls": []}
    return table


def words_of(ax) -> str:
    """All that is written in and around axes, on one line."""
    texts = [ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel(), *(text.get_text() for text in ax.texts)]
    legend = ax.get_legend()
    texts += [text.get_text() for text in legend.get_texts()] if legend else []
    return " ".join(" ".join(texts).split())
