"""Which heads changed in a stretch of training: how far each one went there, or which share of all its way that is.

Where an event was found, its members are told with their evidence (`find_events`); this is the plain ranking behind any
stretch, also one that somebody else names.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from probes.events.panels import MATRICES, Panel, read_panels


def rank_heads(
    table: pd.DataFrame,
    window: tuple[float, float],
    *,
    circuit: str | None = None,
    probe: str | None = None,
    by: str = "share",
) -> pd.DataFrame:
    """Heads by how much they changed between the steps of `window`, the most first.

        probes.rank_heads(table, (1500, 2000)).head(3)
        probes.rank_heads(table, (1500, 2000), circuit="qk", probe="stable_rank", by="way")

    way is how far a head goes in the window, the sum of |changes| from one checkpoint to the next (of ln(value), for
    what is positive); down and up again counts both ways. share is that over its way in the whole run. Both are means
    over all circuits and probes asked for, each number counted once. probes tells how many that are, most which of them
    changed most. Where matrices that are no heads were measured too (embed, mlp_in ...), the column matrix names them
    and is empty for heads. The window ends at the checkpoints nearest to it.

    Shares can be compared between probes, ways only within one. The second line above names the heads that begin to
    match prefixes: in 18 of 18 attention-only runs they came before all others (9 of these runs had no part in the
    choice); by the share of all probes in 13.
    """
    if by not in ("share", "way"):
        raise ValueError(f"by is {by!r}: 'share' or 'way' is expected")
    low, high = window
    if not 0 <= low < high:
        raise ValueError(f"window is {window}: two steps, the first below the second, are expected")
    runs = table["run"].unique()
    if len(runs) > 1:
        raise ValueError(f"the table has the runs {', '.join(runs)}: rank the heads of one, table[table['run'] == ...]")
    rows = table
    for column, wanted in (("circuit", circuit), ("probe", probe)):
        if wanted is not None:
            rows = rows.loc[rows[column] == wanted]
            if rows.empty:
                raise ValueError(f"the table has no {column} {wanted!r}; it has {', '.join(table[column].unique())}")
    panels, refused = read_panels(pd.DataFrame(rows))
    if not panels:
        raise ValueError(f"no probe can be ranked: {next(iter(refused.values()), 'the table is empty')}")
    shares = pd.concat([_shares(panel, low, high) for panel in panels], ignore_index=True)
    shares = shares.sort_values(by, ascending=False)  # so that the first of a head is where it changed most
    grouped = shares.groupby(["tower", "matrix", "layer", "head"], sort=False)
    found = grouped.agg(
        share=("share", "mean"), way=("way", "mean"), probes=("share", "size"), most=("name", "first")
    ).reset_index()
    found = found.sort_values(by, ascending=False, ignore_index=True)
    found = found.drop(columns=[name for name in ("tower", "matrix") if set(found[name]) == {""}])
    found.attrs["window"] = (low, high)
    found.attrs["not_ranked"] = refused
    return found


def ways(panel: Panel, low: float, high: float) -> np.ndarray:
    """How far every head of a panel goes between these steps."""
    before, after = _nearest(panel.steps, low), _nearest(panel.steps, high)
    return np.abs(np.diff(panel.values[before : after + 1], axis=0)).sum(0)


def _shares(panel: Panel, low: float, high: float) -> pd.DataFrame:
    here, whole = ways(panel, low, high), ways(panel, float(panel.steps[0]), float(panel.steps[-1]))
    nearest = _nearest(panel.steps, low)
    if nearest == _nearest(panel.steps, high):
        raise ValueError(
            f"window is ({low:g}, {high:g}): {panel.name} has no two checkpoints there, the nearest is "
            f"{panel.steps[nearest]}"
        )
    return pd.DataFrame(
        {
            "tower": panel.tower or "",
            "layer": [one.layer for one in panel.heads],
            "head": [one.head for one in panel.heads],
            "matrix": [one.name if panel.circuit == MATRICES else "" for one in panel.heads],
            "name": panel.name,
            "share": here / whole,
            "way": here,
        }
    )


def _nearest(steps: Sequence[int] | np.ndarray, step: float) -> int:
    return int(np.argmin(np.abs(np.asarray(steps, dtype=np.float64) - step)))
