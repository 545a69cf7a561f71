"""Modes are followed by their vectors: identity kept, order of learning recovered."""

import numpy as np
import pytest
import torch

import probes
from models.linear_icl.theory import PrintedTheory
from probes import Factored
from tests.matrices import dense, random_factors


def planted(amplitudes: np.ndarray, seed: int = 0) -> list[Factored]:
    """One Factored per time, with the given amplitudes along fixed random directions."""
    rng = np.random.default_rng(seed)
    k = amplitudes.shape[1]
    u, _ = np.linalg.qr(rng.standard_normal((20, k)))
    v, _ = np.linalg.qr(rng.standard_normal((16, k)))
    return [Factored(u * a, v.T) for a in amplitudes]


def test_an_amplitude_done_by_hand():
    basis = probes.thin_svd(np.diag([3.0, 2.0]))
    np.testing.assert_allclose(probes.mode_amplitudes(np.array([[5.0, 7.0], [8.0, -1.0]]), basis), [5, -1])


def test_at_the_final_matrix_the_amplitudes_are_its_singular_values():
    final = random_factors(batch=(3,))
    np.testing.assert_allclose(
        probes.mode_amplitudes(final, probes.thin_svd(final)), probes.singular_values(final), rtol=1e-10
    )


def test_dense_and_factored_agree():
    final, earlier = random_factors(), random_factors(seed=1)
    basis = probes.thin_svd(final)
    expected = np.diag(basis.left.T @ dense(earlier) @ basis.right)
    np.testing.assert_allclose(probes.mode_amplitudes(earlier, basis), expected, atol=1e-10)
    np.testing.assert_allclose(probes.mode_amplitudes(dense(earlier), basis), expected, atol=1e-10)


def test_trajectories_keep_their_identity_while_others_overtake():
    curves = np.array([[1.0, 0.1], [1.1, 1.0], [1.2, 3.0]])  # the second mode ends the larger
    found = probes.mode_trajectories(planted(curves))
    np.testing.assert_allclose(found, curves[:, ::-1], atol=1e-12)  # modes come in order of final size
    assert isinstance(probes.mode_trajectories([torch.eye(2), torch.eye(2)]), torch.Tensor)


def test_removing_modes_leaves_the_others_untouched():
    curves = np.array([[5.0, 2.0, 1.0]])
    matrix = planted(curves)[0]
    basis = probes.thin_svd(matrix)
    for form in (matrix, dense(matrix)):
        rest = probes.remove_modes(form, basis, [1])
        np.testing.assert_allclose(probes.singular_values(rest)[:3], [5, 1, 0], atol=1e-12)


def test_the_two_readings_of_the_marginalized_rank_differ_once_a_later_mode_overtakes():
    curves = np.array([[1.0, 1e-3, 1e-3], [1.0, 1.5, 1e-3], [1.0, 2.0, 4.0]])  # learned in this order, ending reversed
    run = planted(curves)
    basis = probes.thin_svd(run[-1])
    order = probes.convergence_order(probes.mode_trajectories(run), [1, 10, 100])
    assert order == [2, 1, 0]  # the smallest final value was learned first
    by_mode = probes.marginalized_effective_rank_by_mode(run[-1], basis, order, removed=1)
    by_size = probes.marginalized_effective_rank(run[-1], removed=1)
    assert by_mode[0] == pytest.approx(by_size[0])
    assert by_mode[1] == pytest.approx(probes.spectrum_effective_rank([4.0, 2.0]))
    assert by_size[1] == pytest.approx(probes.spectrum_effective_rank([2.0, 1.0]))


@pytest.mark.slow
def test_by_mode_the_marginalized_rank_dips_just_after_the_next_mode_is_learned():
    # 1.13 - 1.22 t* of the next mode, from the closed form of paper 000
    theory = PrintedTheory([1, 0.5, 0.25, 0.125], 128, 1e-3)
    times = np.geomspace(0.5, 2000, 600)
    run = planted(theory.modes(times))
    basis = probes.thin_svd(run[-1])
    order = probes.convergence_order(probes.mode_trajectories(run), times)
    assert order == [3, 2, 1, 0]
    ranks = np.array([probes.marginalized_effective_rank_by_mode(m, basis, order, removed=2) for m in run])
    for k in (0, 1, 2):  # with k modes out, mode k dominates once it is learned
        around = (times > theory.half_times[k] / 2) & (times < theory.half_times[k] * 2)
        dip = times[around][ranks[around, k].argmin()]
        assert 1.1 < dip / theory.half_times[k] < 1.25


def test_what_cannot_be_done_is_refused_by_name():
    final = random_factors()
    basis = probes.thin_svd(final)
    with pytest.raises(ValueError, match="removing 6 modes leaves nothing: use removed <= 5"):
        probes.marginalized_effective_rank_by_mode(final, basis, range(6), removed=6)
    with pytest.raises(ValueError, match="removed is 3: between 0 and the 2 modes"):
        probes.marginalized_effective_rank_by_mode(final, basis, [0, 1], removed=3)
    with pytest.raises(ValueError, match="basis belongs to a matrix of 40 rows and 30 columns"):
        probes.mode_amplitudes(np.eye(4), basis)
    with pytest.raises(ValueError, match="matrices is empty"):
        probes.mode_trajectories([])
    with pytest.raises(ValueError, match="modes is 7: between 1 and 6"):
        probes.mode_trajectories([final], modes=7)


def test_another_final_matrix_and_fewer_modes_can_be_asked_for():
    run, other = [random_factors(seed=i) for i in range(3)], random_factors(seed=9)
    found = probes.mode_trajectories(run, final=other, modes=2)
    assert found.shape == (3, 2)
    basis = probes.thin_svd(other)
    np.testing.assert_allclose(found[1], probes.mode_amplitudes(run[1], basis)[:2])
    np.testing.assert_allclose(probes.mode_trajectories(iter(run)), probes.mode_trajectories(run))


def test_removal_projects_from_both_sides():
    basis, matrix = probes.thin_svd(random_factors()), random_factors(seed=1)
    u, v = basis.left[:, :2], basis.right[:, :2]
    expected = (np.eye(40) - u @ u.T) @ dense(matrix) @ (np.eye(30) - v @ v.T)
    np.testing.assert_allclose(probes.remove_modes(matrix, basis, [0, 1]).dense(), expected, atol=1e-10)
    np.testing.assert_allclose(probes.remove_modes(dense(matrix), basis, [0, 1]), expected, atol=1e-10)


def test_a_mode_that_ends_at_zero_comes_last_whatever_the_signs():
    assert probes.convergence_order(np.array([[0.0, 0.0], [1.0, -1.0], [0.0, -2.0]]), range(3)) == [1, 0]


def test_one_exhausted_head_of_a_batch_is_enough_to_refuse():
    basis = probes.thin_svd(np.stack([np.diag([2.0, 1.0, 0.5]), np.diag([2.0, 0.0, 0.0])]))
    heads = np.stack([np.diag([2.0, 1.0, 0.5]), np.diag([2.0, 0.0, 0.0])])
    with pytest.raises(ValueError, match="removing 1 modes leaves nothing"):
        probes.marginalized_effective_rank_by_mode(heads, basis, [0, 1], removed=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, b: probes.remove_modes(m, b, [0, 0]), r"modes is \[0, 0\]: different modes between 0 and 5"),
        (lambda m, b: probes.remove_modes(m, b, [9]), r"modes is \[9\]"),
        (lambda m, b: probes.remove_modes(m, b, [-1]), r"modes is \[-1\]"),
        (lambda m, b: probes.mode_amplitudes(m, np.linalg.svd(np.eye(4))), r"pass probes\.thin_svd\(final\)"),
        (lambda m, b: probes.mode_amplitudes(np.full((40, 30), np.nan), b), "holds nan at index"),
        (lambda m, b: probes.remove_modes(np.full((40, 30), np.nan), b, [0]), "holds nan at index"),
        (lambda m, b: probes.convergence_order(np.ones((5, 2, 3)), range(5)), r"trajectories has shape \(5, 2, 3\)"),
        (lambda m, b: probes.marginalized_effective_rank_by_mode(np.zeros((40, 30)), b, [0], 1), "the matrix is zero"),
    ],
)
def test_more_that_cannot_be_done_is_refused_by_name(call, message):
    matrix = random_factors()
    with pytest.raises(ValueError, match=message):
        call(matrix, probes.thin_svd(matrix))
