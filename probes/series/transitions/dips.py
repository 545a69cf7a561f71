"""Dips and spikes: the series goes down and comes back up, or goes up and comes back down.

Nothing monotone does that, so the test asks for exactly that: three neighbouring blocks L | M | R of width D, with M
below both L and R (above both: a spike), at every centre and many widths. z is the weaker of the two differences in
standard deviations of the measured noise, and the p-value its tail times the number of places looked at, in both
directions. Between two spikes there is a dip, and beside a dip there may be a spike: the surest comes first, and what
shares blocks with it is not a second one. The turning point is that of a polynomial, whose flanks may differ; its
interval is what the profile likelihood does not exclude at 95 %.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from probes.series.transitions import constants
from probes.series.transitions.blocks import Sums
from probes.series.transitions.transition import Transition


@dataclass(frozen=True)
class Turn(Transition):
    """A dip or a spike, with the middle of the three blocks in which it was found: its turning point is among them."""

    centre: float = float("nan")


def find_dips_and_spikes(sums: Sums, alpha: float) -> list[Turn]:
    """Dips and spikes with p < alpha, counting both directions."""
    from scipy.special import stdtr

    views = {"dip": sums, "spike": sums.flipped()}
    cells = pd.concat([_scan(view).assign(kind=kind) for kind, view in views.items()], ignore_index=True)
    cells = cells.loc[(cells["kind"] == "dip") | (cells["width"] < constants.WIDEST_SPIKE * cells["centre"])]
    is_correlated = cells["inflation"] > constants.CORRELATED
    freedom = np.where(is_correlated, constants.DIP_FREEDOM_IF_CORRELATED, constants.DIP_DEGREES_OF_FREEDOM)
    tail = stdtr(freedom, -cells["z"].to_numpy(dtype=float))
    tried = max(1.0, constants.DIP_INDEPENDENT_CELLS * len(cells))
    cells = cells.assign(p_value=np.minimum(1.0, tried * tail))
    cells = cells.loc[(cells["p_value"] < alpha) & (cells["depth"] > constants.SMALLEST_DEPTH)]
    rows = []
    while len(cells):
        best = cells.loc[cells["z"].idxmax()]
        view, width = views[best["kind"]], float(best["width"])
        centre = float(best["centre"])
        low, bottom, high = _closest_bottom(view, centre, width)
        direction = "fall" if best["kind"] == "dip" else "rise"
        depth, p_value = float(best["depth"]), float(best["p_value"])
        rows.append(Turn(bottom, low, high, str(best["kind"]), direction, depth, p_value, width, centre))
        reach = constants.DIPS_APART * (cells["width"] + best["width"])
        cells = cells.loc[(cells["centre"] - best["centre"]).abs() > reach]
    return rows


def _scan(sums: Sums) -> pd.DataFrame:
    at, parts = sums.at, []
    start = max(float(at[0]), float(at[1] - at[0]))
    for width in constants.DIP_WIDTHS:
        centre = np.exp(np.arange(np.log(start), np.log(at[-1]), width / constants.CENTRES_PER_WIDTH))
        half, whole = width * centre / 2, 1.5 * width * centre
        left = sums.over(centre - whole, centre - half)
        middle = sums.over(centre - half, centre + half)
        right = sums.over(centre + half, centre + whole)
        enough = np.minimum.reduce([b.count for b in (left, middle, right)]) >= constants.DIP_FEWEST_IN_BLOCK
        enough &= (centre - whole >= at[0]) & (centre + whole <= at[-1])
        down, up = left.mean - middle.mean, right.mean - middle.mean
        depth = np.minimum(down, up)
        z = np.minimum(down / np.hypot(left.sd, middle.sd), up / np.hypot(right.sd, middle.sd))
        cells = {"centre": centre, "width": 2 * half, "z": z, "depth": depth,
                 "inflation": middle.inflation}  # fmt: skip
        parts.append({name: column[enough] for name, column in cells.items()})
    return pd.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def has_shoulders(sums: Sums, turn: Turn) -> bool:
    """Whether the way into a dip or spike gets faster and the way out slower, in t or in ln t.

    A spike may set out at once, with its turning point at the edge of its blocks; what falls or comes back at once is a
    cliff, and no dip.
    """
    view, middle = (sums, turn.step) if turn.kind == "dip" else (sums.flipped(), turn.centre)
    edges = turn.width * np.arange(-2.5, 3)
    axes = middle + edges, middle * np.exp(edges / middle)
    return any(_is_slow_outside(view, axis, constants.SHOULDER * turn.strength) for axis in axes)


def _is_slow_outside(view: Sums, edges: np.ndarray, allowed: float) -> bool:
    """Whether, of five blocks, the outer two rise less than the inner two above the middle, where there are values."""
    means = view.over(edges[:-1], edges[1:])
    known = (means.count > 0) & (edges[:-1] >= view.at[0]) & (edges[1:] <= view.at[-1])
    height = means.mean - means.mean[2]
    return all(
        not known[[far, near]].all() or height[near] - height[far] / 2 > allowed for far, near in ((0, 1), (4, 3))
    )


def _closest_bottom(sums: Sums, centre: float, width: float) -> tuple[float, float, float]:
    """The turning point seen from as near as the noise allows, where any dip is a polynomial, and its interval."""
    _, centre, _ = _bottom(sums, centre, width)
    low, bottom, high = _bottom(sums, centre, constants.DIP_CLOSER * width)
    for _ in range(constants.DIP_ROUNDS):
        width *= constants.DIP_CLOSER
        closer = _bottom(sums, bottom, constants.DIP_CLOSER * width)
        if closer[2] - closer[0] > constants.DIP_SEEN * width:
            break
        low, bottom, high = closer
    error = constants.DIP_SHAPE_ERROR * width
    low, high = _over_gaps(sums.at, bottom - np.hypot(bottom - low, error), bottom + np.hypot(high - bottom, error))
    return low, bottom, high


def _over_gaps(at: np.ndarray, low: float, high: float) -> tuple[float, float]:
    """An interval with all of any gap of the record that is longer than itself and holds one of its ends."""
    ends = np.array([low, high])
    after = np.clip(np.searchsorted(at, ends), 1, len(at) - 1)
    begins, stops = at[after - 1], at[after]
    is_long = stops - begins > high - low
    return float(min([low, *begins[is_long]])), float(max([high, *stops[is_long]]))


def _bottom(sums: Sums, centre: float, width: float) -> tuple[float, float, float]:
    """Where the best polynomial around the dip turns, and the places at which the noise does not exclude that it does.

    For each place v that is a level plus a (t - v)^2 + b (t - v)^3 + c (t - v)^4 with a > 0: the flanks may differ and
    flatten out. Few means allow for fewer powers.
    """
    edges = np.linspace(centre - width, np.nextafter(centre + width, np.inf), constants.DIP_BINS + 1)
    means = sums.over(edges[:-1], edges[1:])
    some = means.count > 0
    if some.sum() < constants.DIP_FEWEST_IN_BLOCK:  # a gap in the record: it may turn anywhere in it
        return centre - width, centre, centre + width
    at, mean = (means.at[some] - centre) / width, means.mean[some]
    scale = sums.over(np.array([centre - width]), np.array([centre + width]))
    sd = means.one_value[some] * np.sqrt(scale.inflation[0] / means.count[some])
    highest = int(np.clip(len(at) // constants.DIP_BINS_PER_POWER, 2, 4))
    powers = np.array([0, *range(3, highest + 1), 2])  # the square last: what QR leaves of it has the sign of a
    places = np.linspace(-1, 1, 401)
    q, r = np.linalg.qr((at - places[:, None])[:, :, None] ** powers / sd[:, None])
    height = (mean - mean.mean()) / sd
    parts = height @ q
    misfit = np.maximum(height @ height - (parts**2).sum(1), 0.0)
    misfit[parts[:, -1] * r[:, -1, -1] <= 0] = np.inf
    best = int(misfit.argmin())
    allowed = misfit[best] + constants.PROFILE * max(1.0, misfit[best] / max(1, len(at) - len(powers) - 1))
    inside = places[misfit <= allowed]
    low, bottom, high = (float(centre + width * place) for place in (inside.min(), places[best], inside.max()))
    return low, bottom, high
