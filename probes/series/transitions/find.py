"""Which steps of one noisy series are transitions, where exactly, and how sure that is."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64

from probes.series.checks import Values, read_series
from probes.series.transitions import constants, short_constants
from probes.series.transitions.blocks import Sums
from probes.series.transitions.interventions import Interventions, intervention_steps
from probes.series.transitions.noise import measure_noise
from probes.series.transitions.search import search_long, search_short
from probes.series.transitions.searched import Stretches, searched_by_blocks, warn_if_little
from probes.series.transitions.searched_values import searched_by_values
from probes.series.transitions.settling import find_settling
from probes.series.transitions.tails import with_tails
from probes.series.transitions.transition import Transition, transitions_table
from probes.threads import one_thread

Series = Float64[np.ndarray, " n"]


def find_transitions(
    values: Values,
    steps: Values | None = None,
    *,
    alpha: float = 0.01,
    interventions: Interventions = (),
    autocorrelation: float | None = None,
) -> pd.DataFrame:
    """What happens in one series, falling or rising: one row each, ordered by step.

    kind       cliff: a rapid change between slower stretches. stage: a second hump of the descent in log time, as of
               the loss of a language model when its induction heads form. dip, spike: down and up again, up and down
               again. settled: the last one is over. intervention: a cliff or stage at a step that you named
    direction  fall or rise; of a dip and of a spike, its first half
    step       where half of the change is done; the turning point of a dip or a spike
    low, high  95 % interval for step; that of a cliff with a slow tail holds its middle with the tail and without
    strength   size of the change as a fraction of the range of the series
    p_value    against "this is a decay, a plateau or noise, and nothing happens here", for the whole series and
               everything looked for: with alpha = .01, one such series in a hundred may raise an alarm
    width      how long it takes, in steps: the logistic width of a cliff or stage, the block width of a dip or spike

    `.attrs["searched"]` lists the stretches (low, high) of steps in which a change by the whole range, over the usual
    time (a logistic of width .12 of its step), would have been found in nine of ten cases. Elsewhere nothing found
    means nothing; a warning says so where they are less than half of the record in ln step.

    interventions are steps at which you changed something (the learning rate, say), or the record of the learning rate
    itself, a Series by step, whose jumps are taken. Values that are NaN or infinite are gaps, and a warning counts
    them.

    Up to 250 values are tested one by one against mixtures of decays, smooth drift and noise: AR(1), whose
    autocorrelation from one value to the next may be told if it is known from elsewhere (pooled over the heads of a
    run, say), which buys power, or a random walk in time under independent noise. Longer series are tested by means
    over blocks, with the noise measured at every scale, and by means over bins, with curve, change and noise of any
    memory fitted together.

    Half-drop + 1.1 width is the time t* at which the amplitude behind a squared loss is half grown. steps are counted
    from the start of training: the scales looked at grow in proportion to the step.
    """
    series, at = _read_with_gaps(values, steps)
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
    if autocorrelation is not None and not 0 <= autocorrelation < 1:
        raise ValueError(f"autocorrelation is {autocorrelation}: that of the noise, from 0 to below 1, is expected")
    marks = intervention_steps(interventions)
    calm = without_spikes(series)
    if calm.max() == calm.min():  # constant: any change would have been seen
        return _answer([], [(float(at[0]), float(at[-1]))])
    with one_thread():
        sums = scaled_sums(calm, at)
        if len(series) <= short_constants.SHORT:
            rows, rest = search_short(series, at, sums, alpha, autocorrelation)
            searched = searched_by_values(at, rest, (1 - short_constants.STAGE_SHARE) * alpha, autocorrelation)
        else:
            rows = search_long(calm, at, sums, alpha)
            searched = searched_by_blocks(sums, alpha / (2 * constants.TESTS))
    warn_if_little(searched, at, stacklevel=3)
    last = max(rows, key=lambda row: row.step, default=None)
    settled = find_settling(sums, last) if last and last.kind in ("cliff", "dip") else None
    rows = [_marked(row, marks) for row in with_tails(rows, sums)] + ([settled] if settled else [])
    return _answer(rows, searched)


def scaled_sums(calm: Series, at: Series, *, benefit: float = 1.0) -> Sums:
    """Sums of a series without spikes, scaled so that every height is a fraction of its range; see `measure_noise`."""
    scaled = (calm - calm.min()) / (calm.max() - calm.min())
    return Sums(scaled, at, measure_noise(scaled, at, benefit=benefit))


def without_spikes(series: Series) -> Series:
    """Single values far outside their surroundings, clipped to them."""
    from scipy.ndimage import median_filter, percentile_filter

    middle = median_filter(series, size=constants.SPIKE_MEDIAN, mode="mirror")
    off = np.abs(series - middle)
    high = percentile_filter(off, constants.SPIKE_QUANTILE, size=constants.SPIKE_SCALE, mode="mirror")
    scale = high / constants.NORMAL_AT_SPIKE_QUANTILE
    return np.clip(series, middle - constants.SPIKE * scale, middle + constants.SPIKE * scale)


def _read_with_gaps(values: Any, steps: Any) -> tuple[Series, Series]:
    """The series without its values that are not finite, which a warning counts; all of them being so is refused."""
    try:
        known = np.isfinite(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError, RuntimeError):
        known = np.ones(1, dtype=bool)  # read_series says what is wrong with it
    if known.ndim != 1 or known.all() or not known.any():
        return read_series(values, steps, least=constants.FEWEST)
    filled = np.where(known, np.asarray(values, dtype=np.float64), 0.0)
    if steps is None and isinstance(values, pd.Series):
        filled = pd.Series(filled, values.index)
    series, at = read_series(filled, steps)
    missing = at[~known]
    warnings.warn(
        f"{len(missing)} of {len(at)} values are not finite (the first at step {missing[0]:g}, the last at "
        f"{missing[-1]:g}): they are left out, and what happened there is not seen",
        UserWarning,
        stacklevel=3,
    )
    return read_series(series[known], at[known], least=constants.FEWEST)


def _answer(rows: list[Transition], searched: Stretches) -> pd.DataFrame:
    table = transitions_table(rows)
    table.attrs["searched"] = searched
    return table


def _marked(row: Transition, interventions: np.ndarray) -> Transition:
    near = any(row.low - row.width <= step <= row.high + row.width for step in interventions)
    return replace(row, kind="intervention") if near and row.kind in ("cliff", "stage") else row
