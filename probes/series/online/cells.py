"""Where the first tests of a search by blocks compare means: all that depends on the steps of a series and not on it.

A test compares the means of neighbouring blocks, at many centres and widths. Which values are in a block, how many,
and where its middle lies is the same for every series of the same steps, and a training logs its scalars at the same
steps: so it is worked out once for all of them (`cells_of`). Cells that reach beyond the record, or with too few values
in a block, are not among these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float64, Int64

from probes.series.online.step_noise import StepNoise
from probes.series.transitions import constants

Series = Float64[np.ndarray, " n"]

_CLIFF = ((0, 1), (1, 2), (3, 4), (4, 5))
"""Blocks between the edges of a cell: two before and two after, with a gap; see `convexity`."""
_DIP = ((0, 1), (1, 2), (2, 3))
_SLOPE = ((0, 1), (1, 2))


@dataclass(frozen=True)
class Cells:
    """Blocks of many cells: how many values they have, at which step they are in the mean, and their middle value."""

    centre: Float64[np.ndarray, " cell"]
    width: Float64[np.ndarray, " cell"]
    count: Int64[np.ndarray, "block cell"]
    at: Float64[np.ndarray, "block cell"]
    middle: Int64[np.ndarray, "block cell"]

    def __len__(self) -> int:
        return len(self.centre)

    def where(self, some: Bool[np.ndarray, " cell"]) -> "Cells":
        """Some of them."""
        chosen = np.flatnonzero(some)
        return Cells(
            *(one.take(chosen, axis=-1) for one in (self.centre, self.width, self.count, self.at, self.middle))
        )


@dataclass(frozen=True)
class MeanCells(Cells):
    """The same with where the blocks begin and end in running sums."""

    edges: Int64[np.ndarray, "edge cell"]
    blocks: Sequence[tuple[int, int]]

    def means(self, total: Float64[np.ndarray, " sums"]) -> Float64[np.ndarray, "block cell"]:
        """Of every block, from the running sums of a series that begin with 0."""
        sums = total.take(self.edges)
        return np.array([sums[last] - sums[first] for first, last in self.blocks]) / self.count


class StepCells:
    """The cells of every test, for series of these steps."""

    def __init__(self, at: Series) -> None:
        self.at, self.noise = at, StepNoise(at)
        self._steps = np.concatenate(([0.0], np.cumsum(at)))
        self._first = np.log(max(float(at[0]), float(at[1] - at[0])))
        self.cliffs, self.dips = self._of_cliffs(), self._of_dips()
        self.slopes, self.slope_place, self.slope_width = self._of_slopes()
        with np.errstate(invalid="ignore", divide="ignore"):
            self.slope_apart = np.log(self.slopes.at[1]) - np.log(self.slopes.at[0])

    def _of_cliffs(self) -> MeanCells:
        centre, block = self._centres(tuple(constants.BLOCK_WIDTHS))
        inner, middle, outer = (block * (constants.GAP / 2 + whole) for whole in (0, 1, 2))
        inside = (centre - outer >= self.at[0]) & (centre + outer <= self.at[-1])
        centre, block, inner, middle, outer = (one[inside] for one in (centre, block, inner, middle, outer))
        edges = (centre - outer, centre - middle, centre - inner, centre + inner, centre + middle, centre + outer)
        return self._cells(centre, block, edges, _CLIFF, constants.FEWEST_IN_BLOCK)

    def _of_dips(self) -> MeanCells:
        centre, block = self._centres(tuple(constants.DIP_WIDTHS))
        half, whole = block / 2, 1.5 * block
        inside = (centre - whole >= self.at[0]) & (centre + whole <= self.at[-1])
        centre, block, half, whole = (one[inside] for one in (centre, block, half, whole))
        edges = (centre - whole, centre - half, centre + half, centre + whole)
        return self._cells(centre, block, edges, _DIP, constants.DIP_FEWEST_IN_BLOCK)

    def _of_slopes(self) -> tuple[MeanCells, Int64[np.ndarray, "width place"], Float64[np.ndarray, " width"]]:
        """With where those of each width are among them, one width a row, the last one repeated as often as needed."""
        last = np.log(self.at[-1])
        grids = [
            np.arange(self._first + width, last - width + 1e-9, width / constants.SLOPES_PER_WIDTH)
            for width in constants.SLOPE_WIDTHS
        ]
        x, width = np.concatenate(grids), np.repeat(constants.SLOPE_WIDTHS, [len(grid) for grid in grids])
        edges = (np.exp(x - width), np.exp(x), np.exp(x + width))
        cells = self._cells(x, width, edges, _SLOPE, constants.SLOPE_FEWEST)
        rows = [np.flatnonzero(cells.width == one) for one in constants.SLOPE_WIDTHS]
        some = [(row, one) for row, one in zip(rows, constants.SLOPE_WIDTHS, strict=True) if len(row)]
        longest = max((len(row) for row, _ in some), default=0)
        place = np.array([np.pad(row, (0, longest - len(row)), mode="edge") for row, _ in some], dtype=np.int64)
        return cells, place.reshape(len(some), longest), np.array([one for _, one in some])

    def _centres(self, widths: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
        """The centres at which every width is tried, and the block there."""
        last = np.log(self.at[-1])
        grids = [np.arange(self._first, last, width / constants.CENTRES_PER_WIDTH) for width in widths]
        centre = np.exp(np.concatenate(grids))
        return centre, np.repeat(widths, [len(grid) for grid in grids]) * centre

    def _cells(
        self,
        centre: np.ndarray,
        width: np.ndarray,
        edges: Sequence[np.ndarray],
        blocks: Sequence[tuple[int, int]],
        fewest: int,
    ) -> MeanCells:
        """Those with enough values in every block."""
        found = np.array([np.searchsorted(self.at, edge) for edge in edges], dtype=np.int64)
        first, last = found[[one for one, _ in blocks]], found[[one for _, one in blocks]]
        some = (last - first).min(0) >= fewest
        first, last, found = first[:, some], last[:, some], found[:, some]
        count = last - first
        at = (self._steps[last] - self._steps[first]) / count
        middle = np.minimum((first + last) // 2, len(self.at) - 1)
        return MeanCells(centre[some], width[some], count, at, middle, found, blocks)


def cells_of(at: Series) -> StepCells:
    """The cells for these steps; of the last steps asked for, those that were worked out before."""
    return _known(at.tobytes())


@lru_cache(maxsize=2)
def _known(steps: bytes) -> StepCells:
    return StepCells(np.frombuffer(steps))
