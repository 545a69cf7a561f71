"""Gradient flows integrated numerically: the state at given times, from a velocity and a start."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64


def path(
    velocity: Callable[[float, np.ndarray], np.ndarray],
    start: Float64[np.ndarray, " n"],
    times: Sequence[float] | np.ndarray,
    *,
    rtol: float = 1e-10,
    atol: float = 1e-12,
) -> Float64[np.ndarray, "times n"]:
    """The states at `times`, which begin at or after 0 and do not decrease; some may be equal."""
    times = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if len(times) == 0 or not np.isfinite(times).all() or times[0] < 0 or (np.diff(times) < 0).any():
        raise ValueError("times must not be empty, be finite, begin at or after 0 and not decrease")
    at, inverse = np.unique(times, return_inverse=True)
    if at[-1] == 0:
        return np.repeat(start[None], len(times), axis=0)
    from scipy.integrate import solve_ivp  # half a second to import

    flow = solve_ivp(velocity, (0.0, at[-1]), start, t_eval=at, method="LSODA", rtol=rtol, atol=atol)
    if not flow.success:
        raise RuntimeError(f"the flow could not be integrated to t = {at[-1]:g}: {flow.message}")
    return flow.y.T[inverse]
