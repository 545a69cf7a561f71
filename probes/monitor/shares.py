"""The heads of a sharded model shared out over the ranks: which of them a rank measures, and one table of it all again.

Rank r of n measures heads r, r + n, r + 2n ... of every circuit in every layer; with fewer heads than ranks, some ranks
have none. The first rank always has head 0, so its rows show in which order those of all ranks belong.
"""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from probes.circuits import Circuit, HeadCircuit
from probes.measuring.checkpoint import Plan
from probes.measuring.tables import joined
from probes.monitor.distributed import SingleProcess


def own_share(work: Plan, ranks: SingleProcess) -> Plan:
    """The part of the work that this rank does."""
    if ranks.count == 1:
        return work
    circuits = {name: _every_nth(circuit, ranks) for name, circuit in work.circuits.items()}
    own = {place: len(range(ranks.rank, heads, ranks.count)) for place, heads in work.heads.items()}
    return replace(work, circuits=circuits, heads={place: heads for place, heads in own.items() if heads})


def one_layer(work: Plan, layer: int) -> Plan:
    """The part of the work on one layer."""
    return replace(work, heads={place: heads for place, heads in work.heads.items() if place[1] == layer})


def as_in_the_model(rows: pd.DataFrame, ranks: SingleProcess) -> pd.DataFrame:
    """This rank's rows, with the heads numbered as in the whole model."""
    return rows.assign(head=rows["head"] * ranks.count + ranks.rank)


def in_order(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The rows of all ranks, the first rank's first, in the order in which one process would have had them."""
    if len(parts) < 2:
        return parts[0] if parts else pd.DataFrame()
    rows = joined(parts, {})
    block = rows.groupby(["layer", "probe", "circuit"], sort=False).ngroup()
    place = block * (rows["head"].max() + 1) + rows["head"]
    return rows.iloc[place.argsort(kind="stable")].reset_index(drop=True)


def _every_nth(circuit: Circuit, ranks: SingleProcess) -> HeadCircuit:
    assert isinstance(circuit, HeadCircuit)
    build = circuit.build
    return replace(circuit, build=lambda heads: build(heads)[ranks.rank :: ranks.count])
