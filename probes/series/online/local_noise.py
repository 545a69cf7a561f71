"""A change found in few values is judged once more, by the noise around it.

The likelihood ratio on the values themselves (`transitions/short.py`) takes the noise for equally strong everywhere.
Where it is not, as with noise in proportion to a falling loss or a random walk that is seen at log-spaced steps, what
is usual where the noise is strong looks unlikely beside the record as a whole. With e the residuals of values from the
chord of their neighbours, outside the change,

    r  = sd of e over the NEAREST values on either side / sd of e over all,  at least 1
    p' = P(Z > z / r)                                                        where p = P(Z > z)

For even noise r is 1 but for sampling error, which costs a tenth of z or so.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from probes.series.transitions.transition import Transition

Series = Float64[np.ndarray, " n"]

NEAREST = 8
_NORMAL_MEAN = np.sqrt(np.pi / 2)  # sd over mean absolute value


def judged_where_it_is(row: Transition, extent: tuple[float, float], values: Series, steps: Series) -> Transition:
    """The same change with p' for p. extent is where it takes place, in steps."""
    from scipy.special import ndtr, ndtri

    ratio = noise_ratio(values, steps, extent)
    return replace(row, p_value=float(ndtr(ndtri(row.p_value) / ratio))) if ratio > 1 else row


def noise_ratio(values: Series, steps: Series, extent: tuple[float, float]) -> float:
    """How much stronger the noise is around an extent than everywhere outside it; at least 1."""
    off = np.abs(values[1:-1] - (values[:-2] + values[2:]) / 2)
    before, after = off[steps[2:] < extent[0]], off[steps[:-2] > extent[1]]
    around, everywhere = np.concatenate((before[-NEAREST:], after[:NEAREST])), np.concatenate((before, after))
    whole = float(np.sqrt(np.mean(everywhere**2))) if len(everywhere) else 0.0
    return max(1.0, float(_NORMAL_MEAN * around.mean()) / whole) if whole > 0 else 1.0
