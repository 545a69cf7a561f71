"""The loss against itself, later: A(tau), whose bends show the stages of training (paper 000, section 4, Fig 4A).

    loss_autocorrelation            A(tau) = 1/T       sum_t l(t) l(t + tau),   l = L - L(end)
    unbiased_loss_autocorrelation   A(tau) = 1/(T-tau) sum_t l(t) l(t + tau),   l = L - L(end)
    printed_loss_autocorrelation    A(tau) = 1/(T-tau) sum_t L(t) L(t + tau)    as the paper prints it, E[L(t) L(t+tau)]

The first is the default because, with the curvature taken in log lag, its peaks fall within 3 % of the times t* at
which the modes of the solvable model are learned. The second has the same peaks a little later (within 5 %) as long as
there is no noise; divided by T - tau, noise blows up at the end, where few pairs are left. The third has at most half
of them in log lag, and the early half of them in linear lag: without the subtraction the final loss drowns the rest.

The loss must be recorded at every step (or at any one spacing): a pandas Series whose index is uneven is refused. A
million steps take about a quarter of a second.
"""

import numpy as np
from jaxtyping import Float64

from probes.series.checks import Values, read_even_series, require_scalar

Lags = Float64[np.ndarray, " lags"]


def loss_autocorrelation(loss: Values, *, end: float | None = None) -> Lags:
    """Biased autocorrelation of the loss above its end, at lags 0, 1, 2 ... in units of the spacing.

    end is the value taken off, by default the mean of the last hundredth of the series: one noisy last value would
    otherwise shift the whole curve.
    """
    above = _above_end(loss, end)
    return _lagged_sums(above) / len(above)


def unbiased_loss_autocorrelation(loss: Values, *, end: float | None = None) -> Lags:
    """The same sum divided by the number of pairs at each lag."""
    above = _above_end(loss, end)
    return _lagged_sums(above) / np.arange(len(above), 0, -1)


def printed_loss_autocorrelation(loss: Values) -> Lags:
    """E[L(t) L(t + tau)] as printed in paper 000: the loss itself, averaged over the pairs at each lag."""
    series, _ = read_even_series(loss, name="loss")
    return _lagged_sums(series) / np.arange(len(series), 0, -1)


def _above_end(loss: Values, end: float | None) -> Float64[np.ndarray, " n"]:
    series, _ = read_even_series(loss, name="loss")
    return series - (series[-max(1, len(series) // 100) :].mean() if end is None else require_scalar(end, "end"))


def _lagged_sums(series: Float64[np.ndarray, " n"]) -> Lags:
    """Sum over t of series(t) series(t + tau), by the convolution theorem; zero-padded so that nothing wraps round."""
    n = len(series)
    padded = 1 << (2 * n - 1).bit_length()
    power = np.abs(np.fft.rfft(series, padded)) ** 2
    return np.fft.irfft(power, padded)[:n]
