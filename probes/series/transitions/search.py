"""Everything that is looked for in a long series, at one alpha: cliffs, stages, dips and spikes, falling and rising.

Four searches share alpha in equal parts (cliffs down, cliffs up, stages in both directions, dips and spikes), and the
p-values count all four. What comes back is a dip or a spike, and its flanks are no cliffs or stages of their own; of a
cliff and a stage at the same place the cliff is kept, whose fit is the sharper one. So each place has one name.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from probes.series.transitions import constants
from probes.series.transitions.blocks import Sums
from probes.series.transitions.cliffs import find_cliffs
from probes.series.transitions.dips import find_dips_and_spikes, has_shoulders
from probes.series.transitions.stages import find_stages
from probes.series.transitions.transition import Transition


def search_blocks(sums: Sums, alpha: float, known: Sequence[Transition] = ()) -> list[Transition]:
    """What has p < alpha, ordered by step. Where nothing but the known ones can be found, cliffs are left out."""
    share = alpha / constants.TESTS
    flipped = sums.flipped()
    turns = find_dips_and_spikes(sums, share)
    no_dips = [turn for turn in turns if not has_shoulders(sums, turn)]  # a U-shape; its flanks are no cliffs either
    falls = find_cliffs(sums, share, [row for row in known if row.direction == "fall"])
    rises = find_cliffs(flipped, share, [row for row in known if row.direction == "rise"])
    steps = [*(_if_it_comes_back(flipped, row) for row in falls)]
    steps += [_upwards(_if_it_comes_back(sums, row)) for row in rises]
    for row in sorted(steps, key=lambda row: row.p_value):
        if row.kind != "cliff" and not any(_is_same(row, turn) for turn in turns):
            turns.append(row)
    cliffs = [row for row in steps if row.kind == "cliff" and not _is_flank(row, turns)]
    masked = [_extent(row) for row in turns]
    stages = find_stages(sums, share / 2, masked)
    stages += [_upwards(row) for row in find_stages(flipped, share / 2, masked)]
    rows = [*(turn for turn in turns if turn not in no_dips), *cliffs]
    for stage in sorted(stages, key=lambda row: row.p_value):
        if not _is_flank(stage, turns) and not any(_is_same(stage, row) for row in rows):
            rows.append(stage)
    counted = [replace(row, p_value=min(1.0, constants.TESTS * row.p_value)) for row in rows]
    return sorted(counted, key=lambda row: row.step)


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
