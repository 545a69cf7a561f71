"""Subspace distances: Eq 16 against an honest minimisation, and what must not change them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import subspace_angles

import probes
from probes import Factored
from tests.matrices import dense, random_factors, with_spectrum

seeds = st.integers(0, 10**6)


def by_least_squares(earlier: np.ndarray, final: np.ndarray) -> float:
    """min_A ||A earlier - final||_F by solving for A."""
    a, *_ = np.linalg.lstsq(earlier.T, final.T, rcond=None)
    return float(np.linalg.norm(a.T @ earlier - final))


def test_a_distance_done_by_hand():
    earlier = np.array([[1.0, 0, 0], [0, 0, 0]])
    final = np.array([[5.0, 3, 4], [0, 0, 0]])
    assert probes.subspace_distance(earlier, final) == pytest.approx(5)
    assert probes.subspace_distance(earlier, final, normalised=True) == pytest.approx(5 / np.sqrt(50))
    assert probes.column_subspace_distance(earlier, final) == pytest.approx(0, abs=1e-14)


@given(seeds, st.sampled_from([0.0, 3.0, 6.0]), st.sampled_from([np.float32, np.float64]))
def test_agrees_with_least_squares(seed, decades, dtype):
    earlier = with_spectrum(np.logspace(0, -decades, 6), seed=seed, dtype=dtype)
    final = random_factors(seed=seed + 1, dtype=dtype)
    expected = by_least_squares(dense(earlier), dense(final))
    largest = np.linalg.norm(dense(final), 2)
    assert abs(probes.subspace_distance(earlier, final) - expected) < 1e-8 * largest
    expected = by_least_squares(dense(earlier).T, dense(final).T)
    assert abs(probes.column_subspace_distance(earlier, final) - expected) < 1e-8 * largest


@given(seeds)
def test_agrees_with_least_squares_for_exactly_rank_deficient_factors(seed):
    earlier, final = random_factors(seed=seed), random_factors(seed=seed + 1)
    earlier.left[:, 3:] = earlier.left[:, :3]
    expected = by_least_squares(dense(earlier), dense(final))
    assert abs(probes.subspace_distance(earlier, final) - expected) < 1e-8 * np.linalg.norm(dense(final), 2)


def test_dense_and_factored_agree():
    earlier, final = random_factors(batch=(3,)), random_factors(batch=(3,), seed=1)
    # float64 products carry rounding in every direction, so the dense route is told the rank
    np.testing.assert_allclose(
        probes.subspace_distance(earlier, final, rank=6),
        probes.subspace_distance(dense(earlier), dense(final), rank=6),
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        probes.subspace_drift(earlier, final, rank=3),
        probes.subspace_drift(dense(earlier), dense(final), rank=3),
        rtol=1e-9,
    )


@given(seeds)
def test_an_invertible_map_of_the_rows_has_distance_zero(seed):
    final = random_factors(seed=seed, dtype=np.float64)
    a = np.random.default_rng(seed).standard_normal((40, 40)) + 8 * np.eye(40)
    earlier = Factored(a @ final.left, final.right)
    assert probes.subspace_distance(earlier, final, normalised=True) < 1e-12
    assert probes.subspace_distance(final, final, rank=2) < 1e-10


@given(seeds, st.integers(1, 6))
def test_never_exceeds_the_norm_of_the_final_matrix(seed, rank):
    earlier, final = random_factors(seed=seed), random_factors(seed=seed + 1)
    assert 0 <= probes.subspace_distance(earlier, final) <= probes.frobenius_norm(final) * (1 + 1e-12)
    assert 0 <= probes.subspace_distance(earlier, final, normalised=True, rank=rank) <= 1
    assert 0 <= probes.subspace_drift(earlier, final) <= 1


@given(seeds)
def test_scale_and_factorisation_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    earlier, final = (random_factors(seed=seed + i, dtype=np.float64) for i in (0, 1))
    mix = rng.standard_normal((6, 6)) + 3 * np.eye(6)
    other = Factored(earlier.left @ mix * 1e-3, np.linalg.inv(mix) @ earlier.right)
    for measure in (probes.subspace_distance, probes.column_subspace_distance):
        assert measure(other, final) == pytest.approx(measure(earlier, final), rel=1e-9)
    np.testing.assert_allclose(
        probes.principal_angles(other, final), probes.principal_angles(earlier, final), atol=1e-9
    )


@given(seeds)
def test_rotating_both_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    earlier, final = (random_factors(seed=seed + i, dtype=np.float64) for i in (0, 1))
    turn, _ = np.linalg.qr(rng.standard_normal((30, 30)))
    turned = (Factored(m.left, m.right @ turn) for m in (earlier, final))
    assert probes.subspace_distance(*turned) == pytest.approx(probes.subspace_distance(earlier, final), rel=1e-9)


def test_order_of_heads_does_not_matter():
    earlier, final = random_factors(batch=(4,)), random_factors(batch=(4,), seed=1)
    order = [2, 0, 3, 1]
    np.testing.assert_allclose(
        probes.subspace_distance(earlier[order], final[order]),
        probes.subspace_distance(earlier, final)[order],
        rtol=1e-14,
    )


def test_random_subspaces_score_the_stated_level(rng):
    final = random_factors(rows=24, columns=24, inner=5)
    squares = []
    for _ in range(400):
        rows = rng.standard_normal((6, 24))
        squares.append(
            probes.subspace_distance(Factored(rng.standard_normal((24, 6)), rows), final, normalised=True) ** 2
        )
    level = probes.random_subspace_level(6, 24)
    assert level == pytest.approx(np.sqrt(0.75))
    error = np.std(squares) / np.sqrt(len(squares))
    assert np.mean(squares) == pytest.approx(level**2, abs=4 * error)


def test_a_full_rank_square_matrix_is_at_distance_zero_from_all_and_rank_undoes_that(rng):
    earlier, final = rng.standard_normal((8, 8)), rng.standard_normal((8, 8))
    assert probes.subspace_distance(earlier, final) < 1e-12
    assert probes.subspace_distance(earlier, final, rank=2) > 0.1


def test_rank_limits_both_matrices_to_their_leading_directions():
    earlier, final = with_spectrum([9, 5, 1e-3], seed=0), with_spectrum([7, 6, 1e-3], seed=1)
    u, s, vt = np.linalg.svd(dense(final))
    top = (u[:, :2] * s[:2]) @ vt[:2]
    rows = np.linalg.svd(dense(earlier))[2][:2]
    expected = np.linalg.norm(top - top @ rows.T @ rows)
    assert probes.subspace_distance(earlier, final, rank=2) == pytest.approx(expected, rel=1e-9)


def test_drift_is_symmetric_zero_for_the_same_space_and_one_for_orthogonal_ones():
    a, b = random_factors(), random_factors(seed=1)
    assert probes.subspace_drift(a, b) == pytest.approx(probes.subspace_drift(b, a), rel=1e-12)
    assert probes.subspace_drift(a, a) < 1e-10
    assert probes.subspace_drift(np.diag([1.0, 0, 0]), np.diag([0, 2.0, 0])) == pytest.approx(1)


@given(seeds, st.integers(1, 5))
def test_principal_angles_agree_with_scipy(seed, inner):
    a, b = random_factors(seed=seed, inner=inner), random_factors(seed=seed + 1, inner=4)
    expected = np.sort(subspace_angles(a.right.T.astype(float), b.right.T.astype(float)))
    np.testing.assert_allclose(probes.principal_angles(a, b), expected, atol=1e-9)


def test_small_principal_angles_are_accurate():
    tilt = 1e-9
    a = np.array([[1.0, 0.0, 0.0]])
    b = np.array([[np.cos(tilt), np.sin(tilt), 0.0]])
    assert probes.principal_angles(a, b)[0] == pytest.approx(tilt, rel=1e-6)


def test_torch_in_gives_torch_out():
    a = torch.randn(2, 5, 4)
    for result in (probes.subspace_distance(a, a), probes.subspace_drift(a, a), probes.principal_angles(a, a)):
        assert isinstance(result, torch.Tensor)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: probes.subspace_distance(np.eye(3), np.eye(4)), r"earlier is \(3, 3\), final is \(4, 4\)"),
        (lambda: probes.subspace_distance(np.ones((2, 3, 3)), np.ones((5, 3, 3))), "leading axes do not broadcast"),
        (lambda: probes.subspace_distance(np.eye(3), np.eye(3) * np.nan), r"final .* holds nan at index \(0, 0\)"),
        (lambda: probes.subspace_distance(np.eye(3), np.zeros((3, 3)), normalised=True), "final: a matrix of zeros"),
        (lambda: probes.subspace_drift(np.zeros((3, 3)), np.zeros((3, 3))), "a matrix of zeros"),
        (lambda: probes.subspace_distance(np.eye(3), np.eye(3), rank=4), "rank is 4: between 1 and 3"),
        (lambda: probes.principal_angles(np.zeros((3, 3)), np.eye(3)), "first is zero"),
        (
            lambda: probes.principal_angles(np.stack([np.eye(3), np.diag([1.0, 0, 0])]), np.stack([np.eye(3)] * 2)),
            r"have ranks \[1, 3\]: pass rank=",
        ),
        (lambda: probes.random_subspace_level(5, 4), "rank is 5 and dimension 4"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_drift_by_hand_weighs_each_direction_by_its_energy():
    found = probes.subspace_drift(np.array([[1.0, 0.0]]), np.array([[3.0, 4.0]]))
    assert found == pytest.approx(np.sqrt((16 + 16 / 25) / 26))


def test_drift_of_leading_directions_ignores_the_others():
    earlier, later = np.diag([5.0, 3.0, 0.0]), np.array([[5.0, 0, 0], [0, 0, 3.0], [0, 0, 0]])
    assert probes.subspace_drift(earlier, later, rank=1) == pytest.approx(0, abs=1e-12)
    assert probes.subspace_drift(earlier, later) > 0.3


def test_rank_limits_columns_as_well_and_normalises_by_what_is_compared():
    earlier, final = random_factors(), random_factors(seed=1)
    expected = probes.subspace_distance(earlier.mT, final.mT, rank=2)
    assert probes.column_subspace_distance(earlier, final, rank=2) == pytest.approx(expected)
    orthogonal = probes.subspace_distance(np.diag([0, 2.0, 1.0]), np.diag([3.0, 0, 2.5]), rank=1, normalised=True)
    assert orthogonal == pytest.approx(1)


def test_a_faint_direction_counts_as_present():
    earlier = np.diag([1.0, 1e-10, 0.0])
    assert probes.subspace_distance(earlier, np.diag([1.0, 1.0, 0.0])) == pytest.approx(0, abs=1e-12)
    assert probes.principal_angles(earlier, np.diag([1.0, 1.0, 0.0])).shape == (2,)


def test_numbers_whose_products_overflow_are_refused():
    with pytest.raises(ValueError, match=r"earlier holds numbers up to 1e\+200: products of them overflow"):
        probes.subspace_distance(1e200 * np.eye(3), np.eye(3))


def test_ordinary_heads_take_the_fast_route_and_agree_with_the_slow_one(monkeypatch):
    earlier, final = random_factors(batch=(2, 3)), random_factors(batch=(3,), seed=1)
    slow = [
        by_least_squares(dense(earlier)[i, j], dense(final)[j]) for i in range(2) for j in range(3)
    ]  # the leading axes broadcast
    calls = []
    qr = torch.linalg.qr
    monkeypatch.setattr(torch.linalg, "qr", lambda *a, **k: calls.append(1) or qr(*a, **k))
    np.testing.assert_allclose(probes.subspace_distance(earlier, final).ravel(), slow, rtol=1e-9)
    assert not calls
    near = Factored(final.left, final.right * (1 + 1e-9))
    assert probes.subspace_distance(near, final).max() < 1e-7
    assert calls  # so small a distance cannot come from a difference of squares


@given(seeds)
def test_an_ill_conditioned_row_basis_costs_no_digits(seed):
    earlier, final = random_factors(seed=seed, dtype=np.float64), random_factors(seed=seed + 1, dtype=np.float64)
    turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((6, 6)))  # no mere scaling of rows
    earlier = Factored(earlier.left, turn @ (earlier.right * np.logspace(0, -6, 6)[:, None]))
    expected = by_least_squares(dense(earlier), dense(final))
    assert probes.subspace_distance(earlier, final) == pytest.approx(expected, rel=1e-8)


@given(seeds)
def test_a_small_distance_is_accurate(seed):
    final = random_factors(seed=seed, dtype=np.float64)
    shift = 1e-7 * np.random.default_rng(seed).standard_normal(final.right.shape)
    earlier = Factored(final.left, final.right + shift)
    expected = by_least_squares(dense(earlier), dense(final))
    assert probes.subspace_distance(earlier, final) == pytest.approx(expected, rel=1e-5)


def test_drift_agrees_with_the_projections_written_out():
    a, b = random_factors(), random_factors(seed=1)
    moved = by_least_squares(dense(a), dense(b)) ** 2 + by_least_squares(dense(b), dense(a)) ** 2
    energy = np.linalg.norm(dense(a)) ** 2 + np.linalg.norm(dense(b)) ** 2
    assert probes.subspace_drift(a, b) == pytest.approx(np.sqrt(moved / energy), rel=1e-10)
