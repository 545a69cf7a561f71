"""Effective rank and its rivals: values by hand, invariances, and what they refuse."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import probes
from tests.matrices import dense, random_factors, with_spectrum

SUMMARIES = [probes.effective_rank, probes.stable_rank, probes.participation_ratio]
spectra = st.lists(st.floats(0.01, 100), min_size=1, max_size=8)


def test_effective_rank_is_roy_and_vetterlis():
    # p = (8, 4, 2, 1) / 15; squares would give 2.06, a softmax 1.87
    assert probes.effective_rank(np.diag([4, 2, 1, 0.5])) == pytest.approx(3.1171, abs=5e-5)


def test_rival_summaries_by_hand():
    matrix = np.diag([4, 2, 1, 0.5])
    assert probes.stable_rank(matrix) == pytest.approx(21.25 / 16)
    assert probes.participation_ratio(matrix) == pytest.approx(21.25**2 / (256 + 16 + 1 + 1 / 16))


@pytest.mark.parametrize("summary", SUMMARIES)
@pytest.mark.parametrize("r", [1, 2, 7])
def test_r_equal_values_count_as_r(summary, r):
    assert summary(with_spectrum([3.0] * r)) == pytest.approx(r, rel=1e-9)


@pytest.mark.parametrize("summary", SUMMARIES)
@given(values=spectra, scale=st.floats(1e-30, 1e30))
def test_scale_does_not_matter(summary, values, scale):
    assert summary(np.diag(values) * scale) == pytest.approx(summary(np.diag(values)), rel=1e-9)


@pytest.mark.parametrize("summary", SUMMARIES)
@given(values=spectra, seed=st.integers(0, 10**6))
def test_rotation_does_not_matter(summary, values, seed):
    assert summary(with_spectrum(values, seed=seed)) == pytest.approx(summary(np.diag(values)), rel=1e-6)


@given(values=spectra)
def test_effective_rank_lies_between_one_and_the_rank_and_above_its_rivals(values):
    rank = probes.effective_rank(np.diag(values))
    assert 1 - 1e-9 <= probes.stable_rank(np.diag(values)) <= probes.participation_ratio(np.diag(values)) + 1e-9
    assert probes.participation_ratio(np.diag(values)) <= rank + 1e-9 <= len(values) + 2e-9


def test_order_of_heads_does_not_matter():
    heads = random_factors(batch=(5,))
    order = [4, 2, 0, 1, 3]
    np.testing.assert_array_equal(probes.effective_rank(heads[order]), probes.effective_rank(heads)[order])


def test_a_zero_component_adds_nothing():
    assert probes.effective_rank(np.diag([2.0, 1.0, 0.0])) == pytest.approx(probes.effective_rank(np.diag([2.0, 1.0])))


def test_marginalized_rank_removes_the_largest_first():
    ranks = probes.marginalized_effective_rank(np.diag([1.0, 8.0, 1.0, 1.0]), removed=2)
    assert ranks.shape == (3,)
    np.testing.assert_allclose(ranks[1:], [3, 2], rtol=1e-12)
    assert ranks[0] == pytest.approx(probes.effective_rank(np.diag([8.0, 1.0, 1.0, 1.0])))


def test_marginalized_rank_is_batched_and_starts_with_the_effective_rank():
    heads = random_factors(batch=(2, 3))
    ranks = probes.marginalized_effective_rank(heads, removed=4)
    assert ranks.shape == (2, 3, 5)
    np.testing.assert_allclose(ranks[..., 0], probes.effective_rank(heads))
    by_hand = np.linalg.svd(dense(heads)[1, 2], compute_uv=False)[3:6]
    assert ranks[1, 2, 3] == pytest.approx(probes.spectrum_effective_rank(by_hand))


def test_removing_everything_is_refused_and_says_what_would_do():
    with pytest.raises(ValueError, match=r"only 3 non-zero .* Use removed <= 2"):
        probes.marginalized_effective_rank(np.diag([3.0, 2.0, 1.0, 0.0]), removed=3)
    with pytest.raises(ValueError, match="removed is -1"):
        probes.marginalized_effective_rank(np.eye(3), removed=-1)


@pytest.mark.parametrize("summary", SUMMARIES)
def test_a_zero_matrix_has_no_rank_and_is_named(summary):
    with pytest.raises(ValueError, match="the matrix is zero"):
        summary(np.zeros((3, 3)))
    heads = torch.ones(2, 3, 4, 4)
    heads[1, 2] = 0
    with pytest.raises(ValueError, match=r"index \(1, 2\) of the batch"):
        summary(heads)


def test_what_is_not_a_spectrum_is_refused():
    with pytest.raises(ValueError, match="finite and not negative"):
        probes.spectrum_effective_rank([1.0, -1.0])
    with pytest.raises(ValueError, match="singular values"):
        probes.spectrum_effective_rank([])


def test_spectra_may_come_in_any_order():
    assert probes.spectrum_marginalized_effective_rank([1.0, 8.0, 1.0, 1.0], 1)[1] == pytest.approx(3)
    assert probes.spectrum_stable_rank([1.0, 4.0, 2.0]) == pytest.approx(21 / 16)


@pytest.mark.parametrize("scale", [1e-150, 1e150, 1e308])
def test_scales_at_the_ends_of_float64_do_not_matter(scale):
    for summary in SUMMARIES:
        assert summary(scale * np.eye(3) if scale < 1e308 else scale * np.eye(3) / 2) == pytest.approx(3)


def test_rounding_does_not_count_as_a_component(rng):
    direction = rng.standard_normal(5)
    with pytest.raises(ValueError, match="only 1 non-zero singular values"):
        probes.marginalized_effective_rank(np.outer(direction, direction), removed=1)


def test_one_exhausted_matrix_of_a_batch_is_enough_to_refuse():
    with pytest.raises(ValueError, match="only 1 non-zero"):
        probes.spectrum_marginalized_effective_rank([[3.0, 2.0, 1.0], [3.0, 0.0, 0.0]], 1)
    with pytest.raises(ValueError, match="finite and not negative"):
        probes.spectrum_effective_rank([1.0, np.nan])


def test_four_components_are_removed_unless_said_otherwise():
    assert probes.marginalized_effective_rank(np.eye(6)).shape == (5,)
