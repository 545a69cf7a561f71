"""Is the curve convex here? The test that every cliff has to pass, at every place and many widths.

Everything that merely decays - exponentials, power laws, any sum of them - is convex in linear time: its descent only
ever slows down. A cliff is not: its descent first speeds up and then slows down. So, at every centre c and many widths
D, four neighbouring blocks of width D with a gap in the middle are compared,

        B'      B    |gap|    A      A'            acceleration   B above the chord from B' to A
        ----____                                   deceleration   A below the chord from B to A'
                 \\
                  \\____----

and z is the weaker of the two, in standard deviations of noise that is measured from the series itself.
"""

import numpy as np
import pandas as pd
from jaxtyping import Float64

from probes.series.transitions import constants
from probes.series.transitions.blocks import Blocks, Sums

Series = Float64[np.ndarray, " n"]


def scan(sums: Sums) -> pd.DataFrame:
    """Every place and width looked at: centre, width (of a block), z, drop, and whether the shape is a cliff's."""
    columns = ["centre", "width", "z", "drop", "plausible", "inflation"]
    at, parts = sums.at, []
    for width in constants.BLOCK_WIDTHS:
        centre = _centres(at, width)
        block = width * centre
        inner, middle, outer = (block * (constants.GAP / 2 + whole) for whole in (0, 1, 2))
        before2 = sums.over(centre - outer, centre - middle)
        before = sums.over(centre - middle, centre - inner)
        after = sums.over(centre + inner, centre + middle)
        after2 = sums.over(centre + middle, centre + outer)
        enough = np.minimum.reduce([b.count for b in (before2, before, after, after2)]) >= constants.FEWEST_IN_BLOCK
        enough &= (centre - outer >= at[0]) & (centre + outer <= at[-1])
        if not enough.any():
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            cells = _judge(before2, before, after, after2)
        cells["centre"], cells["width"], cells["inflation"] = centre, block, before.inflation
        parts.append({name: cells[name][enough] for name in columns})
    if not parts:
        return pd.DataFrame(columns=columns)
    return pd.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in columns})


def _centres(at: Series, width: float) -> np.ndarray:
    start = max(float(at[0]), float(at[1] - at[0]))
    spacing = width / constants.CENTRES_PER_WIDTH
    return np.exp(np.arange(np.log(start), np.log(at[-1]), spacing))


def _judge(before2: Blocks, before: Blocks, after: Blocks, after2: Blocks) -> dict[str, np.ndarray]:
    accelerates = _above_chord(before2, before, after)
    decelerates = -_above_chord(before, after, after2)
    drop = before.mean - after.mean
    rate = drop / (after.at - before.at)
    rate_before = (before2.mean - before.mean) / (before.at - before2.at)
    rate_after = (after.mean - after2.mean) / (after2.at - after.at)
    plausible = (
        (drop > 0)
        & (rate > constants.FASTER_INSIDE * np.maximum(rate_before, rate_after))
        & (before.mean - before2.mean < constants.RETURN_ALLOWED * drop)  # else it only comes down from a spike
        & (after2.mean - after.mean < constants.RETURN_ALLOWED * drop)  # else it is a dip
    )
    return {"z": np.minimum(accelerates, decelerates), "drop": drop, "plausible": plausible}


def _above_chord(left: Blocks, middle: Blocks, right: Blocks) -> np.ndarray:
    """How far the middle block lies above the chord of its neighbours, in standard deviations."""
    share = (middle.at - left.at) / (right.at - left.at)
    height = middle.mean - (1 - share) * left.mean - share * right.mean
    return height / np.sqrt(middle.sd**2 + ((1 - share) * left.sd) ** 2 + (share * right.sd) ** 2)
