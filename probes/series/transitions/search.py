"""Everything that is looked for in a series, at one alpha: cliffs, stages, dips and spikes, falling and rising.

In a short series a quarter of alpha goes to stages (`short_stages.py`), the rest to steps and bumps (`short.py`). In a
long one half goes to steps in means over bins (`bins.py`), half to four searches by blocks, in equal parts: cliffs
down, cliffs up, stages in both directions, dips and spikes. The p-values count all of them. What comes back, or only
comes back from somewhere, is a dip or a spike, and its flanks are no cliffs or stages of their own; of a cliff and a
stage at the same place the cliff by blocks is kept, whose fit is the sharper one, then the stage, then the step in
bins. So each place has one name.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from probes.series.transitions import constants, short_constants
from probes.series.transitions.bins import search_bins
from probes.series.transitions.blocks import Sums
from probes.series.transitions.cliffs import find_cliffs
from probes.series.transitions.dips import find_dips_and_spikes, has_shoulders
from probes.series.transitions.likelihood import ChangeTest
from probes.series.transitions.recoveries import spike_if_it_recovers
from probes.series.transitions.short import search_values
from probes.series.transitions.short_stages import hump_test_for
from probes.series.transitions.stages import find_stages, in_log_time, located_stages
from probes.series.transitions.transition import Transition

Series = Float64[np.ndarray, " n"]


def search_long(series: Series, at: Series, sums: Sums, alpha: float) -> list[Transition]:
    """What has p < alpha, ordered by step, in a series without spikes and its sums."""
    steps = search_bins(series, at, alpha / 2)
    rows = search_blocks(sums, alpha / 2, steps=steps)
    return [replace(row, p_value=min(1.0, 2 * row.p_value)) for row in rows]


def search_short(
    series: Series, at: Series, sums: Sums, alpha: float, rho: float | None
) -> tuple[list[Transition], ChangeTest]:
    """What has p < alpha in a short series, ordered by step, and the test that ended the search for steps and bumps."""
    share = short_constants.STAGE_SHARE
    found = search_values(series, at, (1 - share) * alpha, rho)
    rows = [replace(row, p_value=min(1.0, row.p_value / (1 - share))) for row in found.rows]
    turns = [row for row in rows if row.kind != "cliff"]
    masked = [_extent(turn) for turn in turns]
    test, logs = hump_test_for(found.fits), in_log_time(masked)
    falls, rises = (test.humps(sign * found.record, share * alpha / 2, found.known, logs) for sign in (1, -1))
    stages = located_stages(sums, falls, masked)
    stages += [_upwards(row) for row in located_stages(sums.flipped(), rises, masked)]
    stages = [replace(row, p_value=min(1.0, 2 * row.p_value / share)) for row in stages if not _is_flank(row, turns)]
    return sorted([*rows, *_elsewhere(stages, rows)], key=lambda row: row.step), found.rest


def search_blocks(
    sums: Sums, alpha: float, known: Sequence[Transition] = (), steps: Sequence[Transition] = ()
) -> list[Transition]:
    """What has p < alpha, ordered by step. Where nothing but the known ones can be found, cliffs are left out.

    steps are cliffs that another search found: where they are none that is found here, they are kept.
    """
    share = alpha / constants.TESTS
    flipped = sums.flipped()
    others = [replace(row, p_value=row.p_value / constants.TESTS) for row in steps]  # which is counted below
    found = [turn for turn in find_dips_and_spikes(sums, share) if not _is_one_step(turn, others)]
    no_dips = [turn for turn in found if not has_shoulders(sums, turn)]  # a U-shape; its flanks are no cliffs either
    turns: list[Transition] = list(found)
    falls = find_cliffs(sums, share, [row for row in known if row.direction == "fall"])
    rises = find_cliffs(flipped, share, [row for row in known if row.direction == "rise"])
    cliffs = _turned(sums, falls, rises)
    _join_turns(turns, cliffs)
    masked = [_extent(row) for row in turns]
    stages = find_stages(sums, share / 2, masked)
    stages += [_upwards(row) for row in find_stages(flipped, share / 2, masked)]
    rows = [row for row in cliffs if row.kind == "cliff" and not _is_flank(row, turns)]
    rows += _elsewhere([stage for stage in stages if not _is_flank(stage, turns)], [*rows, *turns])
    others = _elsewhere(others, [*rows, *turns])
    down, up = ([row for row in others if row.direction == way] for way in ("fall", "rise"))
    more = _turned(sums, down, [_upwards(row) for row in up])
    _join_turns(turns, more)
    rows += [row for row in more if row.kind == "cliff" and not _is_flank(row, turns)]
    rows += [turn for turn in turns if turn not in no_dips]
    counted = [replace(row, p_value=min(1.0, constants.TESTS * row.p_value)) for row in rows]
    return sorted(counted, key=lambda row: row.step)


def _turned(sums: Sums, falls: Sequence[Transition], rises: Sequence[Transition]) -> list[Transition]:
    """Cliffs; or dips and spikes, where they come back or only come back from one. rises are falls upside down."""
    flipped = sums.flipped()
    found = [_dip_or_spike(sums, flipped, row) for row in falls]
    return [*found, *(_upwards(_dip_or_spike(flipped, sums, row)) for row in rises)]


def _dip_or_spike(sums: Sums, upside_down: Sums, row: Transition) -> Transition:
    row = _if_it_comes_back(upside_down, row)
    return spike_if_it_recovers(sums, row) if row.kind == "cliff" else row


def _join_turns(turns: list[Transition], rows: Sequence[Transition]) -> None:
    """Add those that turned out to be dips and spikes, where none is yet."""
    for row in sorted(rows, key=lambda row: row.p_value):
        if row.kind != "cliff" and row.strength > 0 and not any(_is_same(row, turn) for turn in turns):
            turns.append(row)


def _is_one_step(turn: Transition, steps: Sequence[Transition]) -> bool:
    """Whether a dip or spike is a slow course that ends in a sharp step: its way back is a step, its way in is none."""
    reach = constants.DIPS_APART * turn.width
    into = [row for row in steps if -reach < row.step - turn.step <= 0 and row.direction == turn.direction]
    back = [
        row
        for row in steps
        if 0 < row.step - turn.step < reach
        and row.direction != turn.direction
        and row.width < constants.SHARP_END * turn.width
        and row.strength > turn.strength / 2
    ]
    return bool(back) and not into


def _elsewhere(rows: Sequence[Transition], places: Sequence[Transition]) -> list[Transition]:
    """Those at none of these places, the surest of each other: a place has one name."""
    kept: list[Transition] = []
    for row in sorted(rows, key=lambda row: row.p_value):
        if not any(_is_same(row, place) for place in [*places, *kept]):
            kept.append(row)
    return kept


def _upwards(row: Transition) -> Transition:
    """What was found upside down, the right way up."""
    kind = {"spike": "dip", "dip": "spike"}.get(row.kind, row.kind)
    return replace(row, kind=kind, direction="fall" if row.direction == "rise" else "rise")


def _if_it_comes_back(upside_down: Sums, row: Transition) -> Transition:
    """A cliff, or a dip at its lowest if the series is back within half of the steps that led to it."""
    width = constants.BACK_BLOCK * row.width
    edges = np.arange(row.step + width, (1 + constants.BACK_WITHIN) * row.step, width)
    before = upside_down.over(np.array([row.step - 2.5 * width]), np.array([row.step - 1.5 * width]))
    after = upside_down.over(edges, edges + width)
    if before.count[0] == 0 or not (after.count > 0).any():
        return row
    height = np.where(after.count > 0, after.mean - before.mean[0], -np.inf)  # upside down, so up is further down
    deepest = int(height.argmax())
    back = height[deepest:][after.count[deepest:] > 0].min() < constants.RETURN_ALLOWED * height[deepest]
    if not back:
        return row
    at, reach = float(after.at[deepest]), 0.5 * width
    depth = min(1.0, float(height[deepest]))
    low, high = at - reach, at + reach
    return replace(row, step=at, low=low, high=high, kind="dip", strength=depth, width=width)


def _is_flank(row: Transition, turns: Sequence[Transition]) -> bool:
    """Whether this is only the way into, or out of, a dip or a spike."""
    return any(
        abs(row.step - turn.step) < constants.FLANK_WIDTHS * turn.width
        and row.strength < constants.FLANK_STRENGTH * turn.strength
        for turn in turns
    )


def _extent(turn: Transition) -> tuple[float, float]:
    """The three blocks of a dip or a spike."""
    return turn.step - constants.DIPS_APART * turn.width, turn.step + constants.DIPS_APART * turn.width


def _is_same(stage: Transition, row: Transition) -> bool:
    near = max(constants.SAME_PLACE * row.step, constants.FLANK_WIDTHS * row.width)
    return bool(abs(np.log(stage.step / row.step)) < constants.SAME_PLACE or abs(stage.step - row.step) < near)
