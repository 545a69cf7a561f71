"""Spectra from the factors equal those of the matrix multiplied out."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import probes
from probes import Factored, singular_values, thin_svd
from probes.matrices import grams
from tests.matrices import dense, random_factors, with_spectrum

WORST = 1e-8  # of the largest singular value, against a dense float64 SVD


def worst_error(matrix: Factored) -> float:
    expected = np.linalg.svd(dense(matrix), compute_uv=False)[..., : matrix.inner]
    return float((np.abs(singular_values(matrix) - expected).max(-1) / expected[..., 0]).max())


def test_a_spectrum_done_by_hand():
    left, right = np.diag([2.0, 1.0, 0.0])[:, :2], np.array([[0.0, 3.0, 0.0], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(singular_values(Factored(left, right)), [6, 1], atol=1e-14)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 3.0, 6.0, 9.0, 12.0]), st.sampled_from([np.float32, np.float64]))
def test_agrees_with_a_dense_svd_for_every_spread(seed, decades, dtype):
    matrix = with_spectrum(np.logspace(0, -decades, 8), seed=seed, dtype=dtype)
    assert worst_error(matrix) < WORST


@given(st.integers(0, 10**6))
def test_agrees_with_a_dense_svd_where_each_factor_spreads_over_1e6(seed):
    rng = np.random.default_rng(seed)
    scale = np.logspace(0, -6, 8)
    matrix = Factored(
        (rng.standard_normal((50, 8)) * scale).astype(np.float32), rng.standard_normal((8, 40)).astype(np.float32)
    )
    assert worst_error(matrix) < WORST


@given(st.integers(0, 10**6), st.integers(0, 7))
def test_agrees_with_a_dense_svd_for_exactly_rank_deficient_factors(seed, rank):
    matrix = random_factors(inner=8, seed=seed)
    left = matrix.left.copy()
    left[:, rank:] = left[:, :1] if rank else 0.0
    if rank == 0:
        left[:, 0] = matrix.left[:, 0]
    assert worst_error(Factored(left, matrix.right)) < WORST


def test_agrees_with_a_dense_svd_where_the_factors_cancel(rng):
    # huge directions of left that right annihilates: the product is 1e-5 of what the factors suggest
    left = rng.standard_normal((50, 6))
    left[:, :3] *= 1e5
    right = rng.standard_normal((6, 40))
    right[:3] *= 1e-10
    assert worst_error(Factored(left, right)) < WORST


def test_the_fast_route_is_the_one_used_for_ordinary_heads(rng, monkeypatch):
    calls = []
    qr = torch.linalg.qr
    monkeypatch.setattr(torch.linalg, "qr", lambda *a, **k: calls.append(1) or qr(*a, **k))
    singular_values(random_factors(rows=96, inner=16, columns=96, batch=(4,)))
    assert not calls
    singular_values(with_spectrum(np.logspace(0, -9, 6)))
    assert calls


def test_a_batch_with_one_difficult_matrix_gives_each_its_own_answer():
    easy, hard = random_factors(inner=6), with_spectrum(np.logspace(0, -10, 6))
    both = Factored(np.stack([easy.left, hard.left]), np.stack([easy.right, hard.right]))
    np.testing.assert_allclose(singular_values(both)[0], singular_values(easy), rtol=1e-13)
    np.testing.assert_allclose(singular_values(both)[1], singular_values(hard), rtol=1e-6)


def test_dense_and_factored_give_the_same_numbers():
    matrix = random_factors()
    as_array = singular_values(dense(matrix))
    np.testing.assert_allclose(singular_values(matrix), as_array[:6], atol=1e-12 * as_array[0])
    np.testing.assert_allclose(as_array[6:], 0, atol=1e-12 * as_array[0])


@given(st.integers(0, 10**6))
def test_does_not_depend_on_how_the_product_is_factored(seed):
    rng = np.random.default_rng(seed)
    matrix = random_factors(seed=seed, dtype=np.float64)
    mix = rng.standard_normal((6, 6)) + 3 * np.eye(6)
    other = Factored(matrix.left @ mix, np.linalg.inv(mix) @ matrix.right)
    np.testing.assert_allclose(singular_values(other), singular_values(matrix), rtol=1e-9)


def test_does_not_depend_on_the_order_of_heads_or_the_block_they_fall_into(monkeypatch):
    heads = random_factors(batch=(7,))
    order = [3, 1, 6, 0, 2, 5, 4]
    whole = singular_values(heads)
    monkeypatch.setattr(grams, "_BLOCK_BYTES", 1)
    np.testing.assert_array_equal(singular_values(heads[order]), whole[order])


def test_factors_wider_than_their_product_are_multiplied_out():
    matrix = random_factors(rows=4, inner=9, columns=5)
    assert singular_values(matrix).shape == (4,)
    np.testing.assert_allclose(singular_values(matrix), np.linalg.svd(dense(matrix), compute_uv=False), rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_floating_type_is_computed_in_float64(dtype):
    matrix = random_factors(dtype=np.float64)
    stored = Factored(torch.tensor(matrix.left).to(dtype), torch.tensor(matrix.right).to(dtype))
    expected = np.linalg.svd(stored.left.double().numpy() @ stored.right.double().numpy(), compute_uv=False)[:6]
    values = singular_values(stored)
    assert values.dtype == torch.float64
    np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_numpy_in_gives_numpy_out_and_torch_in_gives_torch_out(rng):
    array = rng.standard_normal((5, 4))
    assert isinstance(singular_values(array), np.ndarray)
    assert isinstance(singular_values(torch.tensor(array)), torch.Tensor)
    assert isinstance(singular_values(Factored(array, array.T)), np.ndarray)
    assert isinstance(probes.effective_rank(Factored(torch.tensor(array), array.T)), torch.Tensor)
    assert isinstance(probes.effective_rank(array), float)


def test_transposed_reversed_and_read_only_arrays_are_read_as_they_look(rng):
    array = rng.standard_normal((6, 4))
    expected = np.linalg.svd(array, compute_uv=False)
    frozen = array.copy()
    frozen.flags.writeable = False
    for view in (array.T, array[::-1], array[:, ::-1], np.asfortranarray(array), frozen):
        np.testing.assert_allclose(singular_values(view), expected, rtol=1e-12)


def test_thin_svd_rebuilds_the_matrix_with_orthonormal_columns():
    for matrix in (random_factors(batch=(3,)), with_spectrum([1.0, 1e-3, 0.0, 0.0])):
        svd = thin_svd(matrix)
        eye = np.broadcast_to(np.eye(matrix.inner), (*matrix.shape[:-2], matrix.inner, matrix.inner))
        np.testing.assert_allclose(svd.left.mT @ svd.left, eye, atol=1e-12)
        np.testing.assert_allclose(svd.right.mT @ svd.right, eye, atol=1e-12)
        rebuilt = (svd.left * svd.values[..., None, :]) @ svd.right.mT
        np.testing.assert_allclose(rebuilt, dense(matrix), atol=1e-12 * svd.values.max())


def test_norm_from_the_factors_is_the_norm_of_the_product():
    matrix = random_factors(batch=(3,))
    np.testing.assert_allclose(probes.frobenius_norm(matrix), np.linalg.norm(dense(matrix), axis=(-2, -1)), rtol=1e-12)


def test_shared_factors_broadcast_without_copies(rng):
    left, right = rng.standard_normal((2, 1, 20, 3)), rng.standard_normal((1, 4, 3, 20))
    matrix = Factored(left, right)
    assert matrix.shape == (2, 4, 20, 20)
    np.testing.assert_allclose(
        singular_values(matrix)[1, 2], singular_values(Factored(left[1, 0], right[0, 2])), rtol=1e-12
    )
    assert matrix[1, 2].shape == (20, 20)
    assert matrix.mT.shape == (2, 4, 20, 20)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (np.ones((4, 3)), np.ones((2, 4)), "inner axes must agree, 3 is not 2"),
        (np.ones(4), np.ones((2, 4)), r"left has shape \(4,\)"),
        (np.ones((4, 0)), np.ones((0, 4)), r"left has shape \(4, 0\): it is empty"),
        (np.ones((2, 4, 3)), np.ones((3, 3, 4)), "leading axes do not broadcast"),
        (np.ones((4, 3)), np.ones((3, 4), dtype=complex), "right has dtype complex128"),
        (np.ones((4, 3)), [[1, 2], [3]], "right is not a rectangular array"),
    ],
)
def test_factors_that_make_no_matrix_are_refused_by_name(left, right, message):
    with pytest.raises(ValueError, match=message):
        Factored(left, right)


@pytest.mark.parametrize("function", [singular_values, thin_svd, probes.effective_rank, probes.frobenius_norm])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_located(function, bad):
    matrix = random_factors(batch=(2,))
    matrix.left[1, 7, 2] = bad
    with pytest.raises(ValueError, match=r"matrix.left .* holds (nan|inf) at index \(1, 7, 2\)"):
        function(matrix)
    array = np.ones((3, 3))
    array[2, 1] = bad
    with pytest.raises(ValueError, match=r"matrix .* at index \(2, 1\)"):
        function(array)


@pytest.mark.parametrize("bad", [np.ones(3), np.ones((3, 0)), np.array([["a", "b"]]), 3.0])
def test_what_is_not_a_matrix_is_refused_by_name(bad):
    with pytest.raises(ValueError, match=r"matrix has (shape|dtype)"):
        singular_values(bad)


def test_the_route_taken_with_several_threads_agrees_too(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    for seed in range(5):
        assert worst_error(random_factors(rows=60, columns=40, inner=8, seed=seed)) < WORST


def test_small_singular_values_are_right_to_many_digits_not_only_beside_the_largest():
    values = np.logspace(0, -9, 8)
    np.testing.assert_allclose(singular_values(with_spectrum(values)), values, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-90, 1e80])
def test_factors_whose_squares_leave_float64_are_still_measured(rng, scale):
    left, right = rng.standard_normal((9, 2)), rng.standard_normal((2, 9))
    expected = singular_values(Factored(left, right))
    np.testing.assert_allclose(
        singular_values(Factored(scale * left, scale * right)) / scale / scale, expected, rtol=1e-9
    )


def test_factors_wider_than_one_side_of_their_product_give_as_many_values_as_it_has():
    matrix = random_factors(rows=4, inner=6, columns=30)
    assert singular_values(matrix).shape == (4,)
    assert thin_svd(matrix).values.shape == (4,)


def test_a_dense_matrix_is_rebuilt_from_its_svd(rng):
    matrix = rng.standard_normal((2, 5, 3))
    svd = thin_svd(matrix)
    np.testing.assert_allclose((svd.left * svd.values[..., None, :]) @ svd.right.mT, matrix, atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e200, 1e-200])
def test_the_norm_of_a_dense_matrix(scale, rng):
    matrix = rng.integers(-5, 5, (4, 3))
    assert probes.frobenius_norm(matrix * scale) == pytest.approx(scale * np.linalg.norm(matrix), rel=1e-12)
    assert probes.frobenius_norm(torch.tensor(matrix).to(torch.bfloat16)).dtype == torch.float64


@pytest.mark.parametrize("convert", [
    lambda a: a.astype(np.longdouble),
    lambda a: a.astype(">f4"),
    lambda a: torch.tensor(a).requires_grad_(),
    lambda a: [torch.tensor(row, dtype=torch.bfloat16) for row in a],
    lambda a: torch.tensor(a).to(torch.float8_e4m3fn),
    lambda a: a.tolist(),
])  # fmt: skip
def test_unusual_ways_to_hold_numbers_are_read(convert):
    matrix = np.diag([4.0, 2.0, 1.0])
    np.testing.assert_allclose(singular_values(convert(matrix)), [4, 2, 1])


def test_sparse_tensors_and_other_axes_than_the_leading_ones_are_refused_by_name():
    with pytest.raises(ValueError, match=r"matrix is stored as torch\.sparse_coo"):
        singular_values(torch.eye(3).to_sparse())
    with pytest.raises(IndexError, match="only the leading axes"):
        random_factors(batch=(2,))[..., 0]
