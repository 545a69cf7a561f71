"""Dips and spikes: the series goes down and comes back up, or goes up and comes back down.

Nothing monotone does that, so the test asks for exactly that: three neighbouring blocks L | M | R of width D, with M
below both L and R (above both: a spike), at every centre and many widths. z is the weaker of the two differences in
standard deviations of the measured noise, and the p-value its tail times the number of places looked at, in both
directions. Between two spikes there is a dip, and beside a dip there may be a spike: the surest comes first, and what
shares blocks with it is not a second one. The turning point is located by a parabola; its interval is what the profile
likelihood of that parabola does not exclude at 95 %.
"""

import numpy as np
import pandas as pd

from probes.series.transitions import constants
from probes.series.transitions.blocks import Sums
from probes.series.transitions.transition import Transition


def find_dips_and_spikes(sums: Sums, alpha: float) -> list[Transition]:
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
        low, bottom, high = _bottom(view, float(best["centre"]), width)
        for _ in range(constants.DIP_ROUNDS):  # closer in, and centred: a dip is a parabola only near its bottom
            low, bottom, high = _bottom(view, bottom, constants.DIP_CLOSER * width)
        direction = "fall" if best["kind"] == "dip" else "rise"
        depth, p_value = float(best["depth"]), float(best["p_value"])
        rows.append(Transition(bottom, low, high, str(best["kind"]), direction, depth, p_value, width))
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


def has_shoulders(sums: Sums, row: Transition) -> bool:
    """Whether the way into a dip or spike gets faster and the way out slower, where there are values to tell."""
    view = sums if row.kind == "dip" else sums.flipped()
    middles = row.step + row.width * np.arange(-2, 3)
    means = view.over(middles - row.width / 2, middles + row.width / 2)
    known = (means.count > 0) & (middles - row.width / 2 >= sums.at[0]) & (middles + row.width / 2 <= sums.at[-1])
    height = means.mean - means.mean[2]
    allowed = constants.SHOULDER * row.strength
    return all(
        not known[[far, near]].all() or height[near] - height[far] / 2 > allowed for far, near in ((0, 1), (4, 3))
    )


def _bottom(sums: Sums, centre: float, width: float) -> tuple[float, float, float]:
    """The vertex of the best parabola around the dip, and the vertices that the noise does not exclude."""
    edges = np.linspace(centre - width, np.nextafter(centre + width, np.inf), constants.DIP_BINS + 1)
    means = sums.over(edges[:-1], edges[1:])
    some = means.count > 0
    at, mean = (means.at[some] - centre) / width, means.mean[some]
    scale = sums.over(np.array([centre - width / 2]), np.array([centre + width / 2]))
    sd = means.one_value[some] * np.sqrt(scale.inflation[0] / means.count[some])
    vertices = np.linspace(-1, 1, 401)
    weight = sd**-2 / np.sum(sd**-2)
    squares = (at - vertices[:, None]) ** 2
    squares -= (squares @ weight)[:, None]
    height = mean - weight @ mean
    slope = squares @ (weight * height) / (squares**2 @ weight)
    misfit = np.sum((height - slope[:, None] * squares) ** 2 / sd**2, axis=1)  # a parabola at each vertex
    allowed = misfit.min() + constants.PROFILE * max(1.0, misfit.min() / max(1, len(at) - 3))
    inside = vertices[misfit <= allowed]
    best = vertices[int(misfit.argmin())]
    low, bottom, high = (float(centre + width * v) for v in (inside.min(), best, inside.max()))
    return low, bottom, high
