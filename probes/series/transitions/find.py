"""Which steps of one noisy series are transitions, where exactly, and how sure that is."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from jaxtyping import Float64

from probes.series.checks import Values, read_series
from probes.series.transitions import constants
from probes.series.transitions.blocks import Sums
from probes.series.transitions.cliffs import find_cliffs
from probes.series.transitions.dips import find_dips
from probes.series.transitions.noise import measure_noise
from probes.series.transitions.settling import find_settling
from probes.series.transitions.transition import Transition, transitions_table

Series = Float64[np.ndarray, " n"]


def find_transitions(
    values: Values, steps: Values | None = None, *, alpha: float = 0.01, interventions: float | Sequence[float] = ()
) -> pd.DataFrame:
    """Cliffs, dips and the settling of one series, one row each, ordered by step.

    kind      cliff: a rapid drop between slower stretches. dip: down and up again. settled: the last one is over.
    step      where half of the drop is done; the bottom of a dip
    low, high 95 % interval for step
    strength  size of the drop or dip as a fraction of the range of the series
    p_value   against "this is a decay, a plateau or noise, and nothing happens here", for the whole series: with
              alpha = .01, one such series in a hundred may raise an alarm
    width     how long it takes, in steps: the logistic width of a cliff, the block width of a dip

    Only drops are cliffs: hand in `-values` for a curve that rises. Half-drop + 1.1 width is the time t* at which the
    amplitude behind a squared loss is half grown. A drop at one of `interventions` (steps at which you changed the
    learning rate, say) is reported with kind "intervention".

    steps are counted from the start of training: the scales looked at grow in proportion to the step.
    """
    series, at = read_series(values, steps, least=constants.FEWEST)
    if at[0] < 0:
        raise ValueError(
            f"steps begin at {at[0]:g}: steps counted from the start of training, not below 0, are expected"
        )
    if at[-1] < constants.SHORTEST * at[0]:
        raise ValueError(
            f"steps run from {at[0]:g} to {at[-1]:g}: a stretch so short, for how far it is from step 0, cannot be "
            "scanned. If steps are not counted from the start of training, pass steps - steps[0]"
        )
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}: a false-alarm rate between 0 and 1 is expected")
    if series.max() == series.min():
        return transitions_table([])
    calm = without_spikes(series)
    if calm.max() == calm.min():
        return transitions_table([])
    sums = scaled_sums(calm, at)
    rows = cliffs_and_dips(sums, alpha)
    settled = find_settling(sums, rows[-1]) if rows else None
    marks = np.atleast_1d(np.asarray(interventions, dtype=np.float64))
    rows = [_marked(row, marks) for row in rows] + ([settled] if settled else [])
    return transitions_table(rows)


def scaled_sums(calm: Series, at: Series, *, benefit: float = 1.0) -> Sums:
    """Sums of a series without spikes, scaled so that every height is a fraction of its range; see `measure_noise`."""
    scaled = (calm - calm.min()) / (calm.max() - calm.min())
    return Sums(scaled, at, measure_noise(scaled, at, benefit=benefit))


def cliffs_and_dips(sums: Sums, alpha: float, known: Sequence[Transition] = ()) -> list[Transition]:
    """What has p < alpha, ordered by step. Where nothing but the known ones can be found, cliffs are left out."""
    dips = find_dips(sums, alpha)
    cliffs = [cliff for cliff in find_cliffs(sums, alpha, known) if not any(_is_flank(cliff, dip) for dip in dips)]
    return sorted(cliffs + dips, key=lambda row: row.step)


def _is_flank(cliff: Transition, dip: Transition) -> bool:
    """Whether this drop is only the way down into that dip."""
    near = abs(cliff.step - dip.step) < constants.FLANK_WIDTHS * dip.width
    return bool(near and cliff.strength < constants.FLANK_STRENGTH * dip.strength)


def _marked(row: Transition, interventions: np.ndarray) -> Transition:
    near = any(row.low - row.width <= step <= row.high + row.width for step in interventions)
    return replace(row, kind="intervention") if near and row.kind == "cliff" else row


def without_spikes(series: Series) -> Series:
    """Single values far outside their surroundings, clipped to them."""
    from scipy.ndimage import median_filter, percentile_filter

    middle = median_filter(series, size=constants.SPIKE_MEDIAN, mode="mirror")
    off = np.abs(series - middle)
    high = percentile_filter(off, constants.SPIKE_QUANTILE, size=constants.SPIKE_SCALE, mode="mirror")
    scale = high / constants.NORMAL_AT_SPIKE_QUANTILE
    return np.clip(series, middle - constants.SPIKE * scale, middle + constants.SPIKE * scale)
