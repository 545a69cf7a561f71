"""Matrices with planted spectra, shared by the tests of the matrix probes."""

import numpy as np

from probes import Factored


def with_spectrum(values, rows=40, columns=30, inner=None, seed=0, dtype=np.float64):
    """A Factored whose product has the given singular values (and no others)."""
    rng = np.random.default_rng(seed)
    inner = inner or len(values)
    u, _ = np.linalg.qr(rng.standard_normal((rows, len(values))))
    v, _ = np.linalg.qr(rng.standard_normal((columns, len(values))))
    mix = rng.standard_normal((len(values), inner)) + 2 * np.eye(len(values), inner)
    left = (u * np.sqrt(values)) @ mix
    right = np.linalg.pinv(mix) @ (v * np.sqrt(values)).T
    return Factored(left.astype(dtype), right.astype(dtype))


def random_factors(rows=40, inner=6, columns=30, batch=(), seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return Factored(
        rng.standard_normal((*batch, rows, inner)).astype(dtype),
        rng.standard_normal((*batch, inner, columns)).astype(dtype),
    )


def dense(matrix: Factored) -> np.ndarray:
    """The product in float64 by NumPy alone."""
    return np.asarray(matrix.left, dtype=np.float64) @ np.asarray(matrix.right, dtype=np.float64)
