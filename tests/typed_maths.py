"""What a type checker is to see of the public maths. Never run: pyright reads it, in `test_typing.py`.

torch in, torch out; anything else in, NumPy out; a pandas Series in, a Series out. Where two kinds are mixed, or one is
not known, either may come out.
"""

from typing import assert_type

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

import probes
from probes import SVD, Factored

Array = np.ndarray | Tensor


def what_counts_as_a_matrix(
    array: np.ndarray, halves: NDArray[np.float16], tensor: Tensor, table: pd.DataFrame, either: Array
) -> None:
    assert_type(probes.singular_values(array), np.ndarray)
    assert_type(probes.singular_values(halves), np.ndarray)
    assert_type(probes.singular_values(tensor), Tensor)
    assert_type(probes.singular_values(table), np.ndarray)
    assert_type(probes.singular_values([[1, 2], [3, 4]]), np.ndarray)
    assert_type(probes.singular_values(either), Array)
    assert_type(probes.singular_values(Factored(array, table)), np.ndarray)
    assert_type(probes.singular_values(Factored(tensor, tensor)), Tensor)


def factors(array: np.ndarray, tensor: Tensor, either: Array) -> None:
    assert_type(Factored(array, array), Factored[np.ndarray])
    assert_type(Factored(tensor, tensor), Factored[Tensor])
    assert_type(Factored(array, tensor), Factored[Tensor])
    assert_type(Factored(tensor, [[1.0]]), Factored[Tensor])
    assert_type(Factored(either, either), Factored[np.ndarray] | Factored[Tensor])
    assert_type(Factored(array, array).mT[0].left, np.ndarray)
    assert_type(Factored(tensor, tensor).mT[0].right, Tensor)
    assert_type(Factored(array, array).dense(), np.ndarray)


def one_matrix(array: np.ndarray, heads: Factored[Tensor]) -> None:
    assert_type(probes.frobenius_norm(array), np.ndarray)
    assert_type(probes.frobenius_norm(heads), Tensor)
    assert_type(probes.effective_rank(array), np.ndarray)
    assert_type(probes.effective_rank(heads), Tensor)
    assert_type(probes.stable_rank(array), np.ndarray)
    assert_type(probes.stable_rank(heads), Tensor)
    assert_type(probes.participation_ratio(array), np.ndarray)
    assert_type(probes.participation_ratio(heads), Tensor)
    assert_type(probes.marginalized_effective_rank(array, removed=2), np.ndarray)
    assert_type(probes.marginalized_effective_rank(heads), Tensor)
    assert_type(probes.thin_svd(array), SVD[np.ndarray])
    assert_type(probes.thin_svd(heads).values, Tensor)


def one_spectrum(array: np.ndarray, tensor: Tensor) -> None:
    assert_type(probes.spectrum_effective_rank([4.0, 2.0]), np.ndarray)
    assert_type(probes.spectrum_effective_rank(tensor), Tensor)
    assert_type(probes.spectrum_stable_rank(array), np.ndarray)
    assert_type(probes.spectrum_stable_rank(tensor), Tensor)
    assert_type(probes.spectrum_participation_ratio(array), np.ndarray)
    assert_type(probes.spectrum_participation_ratio(tensor), Tensor)
    assert_type(probes.spectrum_marginalized_effective_rank(array, 2), np.ndarray)
    assert_type(probes.spectrum_marginalized_effective_rank(tensor), Tensor)


def two_matrices(array: np.ndarray, tensor: Tensor, table: pd.DataFrame) -> None:
    assert_type(probes.subspace_distance(array, array), np.ndarray)
    assert_type(probes.subspace_distance(tensor, Factored(tensor, tensor), rank=2), Tensor)
    assert_type(probes.subspace_distance(array, tensor), Array)
    assert_type(probes.column_subspace_distance(table, array), np.ndarray)
    assert_type(probes.column_subspace_distance(tensor, tensor, normalised=True), Tensor)
    assert_type(probes.subspace_drift(array, [[1.0]]), np.ndarray)
    assert_type(probes.subspace_drift(tensor, tensor), Tensor)
    assert_type(probes.principal_angles(array, array), np.ndarray)
    assert_type(probes.principal_angles(tensor, tensor), Tensor)


def modes(array: np.ndarray, tensor: Tensor, basis: SVD[Tensor]) -> None:
    assert_type(probes.mode_amplitudes(array, basis), np.ndarray)
    assert_type(probes.mode_amplitudes(tensor, basis), Tensor)
    assert_type(probes.mode_trajectories(array), np.ndarray)
    assert_type(probes.mode_trajectories([array, array], final=tensor), np.ndarray)
    assert_type(probes.mode_trajectories([Factored(tensor, array)], modes=2), Tensor)
    assert_type(probes.mode_trajectories([[[1.0]]]), np.ndarray)
    assert_type(probes.remove_modes(array, basis, [0]), np.ndarray)
    assert_type(probes.remove_modes(tensor, basis, [0]), Tensor)
    assert_type(probes.remove_modes(Factored(tensor, tensor), basis, [0]), Factored[Tensor])
    assert_type(probes.marginalized_effective_rank_by_mode(array, basis, [0, 1], 1), np.ndarray)
    assert_type(probes.marginalized_effective_rank_by_mode(tensor, basis, [0, 1], 1), Tensor)


def series(array: np.ndarray, tensor: Tensor, loss: pd.Series) -> None:
    assert_type(probes.slope(loss), pd.Series)
    assert_type(probes.slope(array, array), np.ndarray)
    assert_type(probes.slope(tensor, range(9)), np.ndarray)
    assert_type(probes.curvature(loss, array), pd.Series)
    assert_type(probes.curvature([1.0, 2.0, 3.0, 4.0], [1, 2, 3, 4]), np.ndarray)
    assert_type(probes.linear_curvature(loss, smoothing=3.0), pd.Series)
    assert_type(probes.linear_curvature(array, smoothing=3.0), np.ndarray)
    assert_type(probes.norm_growth(loss), pd.Series)
    assert_type(probes.norm_growth(array, array), np.ndarray)
    assert_type(probes.norm_curvature(loss), pd.Series)
    assert_type(probes.norm_curvature(array, array), np.ndarray)
    assert_type(probes.loss_autocorrelation(loss), np.ndarray)
    assert_type(probes.peaks(loss), pd.DataFrame)
    assert_type(probes.half_time(loss), float)
    assert_type(probes.fit_growth(loss)["logistic"], probes.GrowthFit)
    assert_type(probes.convergence_order(array), list[int])
    assert_type(probes.find_transitions(loss), pd.DataFrame)
