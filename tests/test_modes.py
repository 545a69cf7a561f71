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
