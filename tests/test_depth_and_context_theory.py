"""Theory of paper 003: check values, its errata, and the deterministic equivalent against sampled matrices."""

import numpy as np
import pytest

from models.depth_and_context import laws
from models.depth_and_context.attention_theory import FullAttentionFlow, PrintedFullAttentionFlow
from models.depth_and_context.deterministic_equivalent import (
    DeterministicEquivalent,
    context_bottleneck,
    printed_bottleneck,
    width_bottleneck,
)
from models.depth_and_context.shallow_sgd import ShallowSGD, printed_losses, wishart_moment
from models.depth_and_context.spectrum import power_law, spectrum_of
from models.depth_and_context.theory import (
    FixedCovarianceFlow,
    IsoFlow,
    PrintedFixedCovarianceFlow,
    RotatedFlow,
    marchenko_pastur,
    out_of_distribution_loss,
    printed_iso_final_loss,
)

WIDE = power_law(1.5, 0.7, 10**9)


def slope(x, y):
    return -np.polyfit(np.log(x), np.log(y), 1)[0]


# isotropic data


@pytest.mark.parametrize("ratio", [0.5, 1, 2, 4])
def test_one_layer_ends_at_one_over_one_plus_alpha_and_the_printed_square_is_the_distance_of_gamma(ratio):
    flow = IsoFlow(1, ratio)
    assert flow.final_loss == pytest.approx(1 / (1 + ratio), rel=1e-9)
    assert (flow.best_gamma - 1) ** 2 == pytest.approx(printed_iso_final_loss(ratio), rel=1e-9)


def test_check_values_of_depth_at_alpha_one():
    found = [IsoFlow(depth, 1.0).final_loss for depth in (1, 2, 4, 8)]
    np.testing.assert_allclose(found, [0.5, 0.375, 0.27344, 0.19638], rtol=2e-5)


@pytest.mark.parametrize("ratio", [0.5, 3.0])
def test_without_noise_the_best_gamma_is_the_same_share_of_every_depth(ratio):
    for depth in (1, 3, 16):
        assert IsoFlow(depth, ratio).best_gamma == pytest.approx(depth * ratio / (1 + ratio), rel=1e-6)


def test_infinite_depth_leaves_what_the_context_does_not_span():
    assert IsoFlow(4096, 0.5).final_loss == pytest.approx(0.5, abs=5e-3)
    assert IsoFlow(1, 1e6).final_loss < 1e-5  # Result 2: one layer is enough for a long context


def test_marchenko_pastur_has_the_moments_of_a_wishart_matrix():
    for ratio in (0.5, 1.0, 3.0):
        lam, weight = marchenko_pastur(ratio)
        c = 1 / ratio
        np.testing.assert_allclose(
            [weight.sum(), weight @ lam, weight @ lam**2, weight @ lam**3], [1, 1, 1 + c, 1 + 3 * c + c**2], rtol=1e-9
        )


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_the_velocity_is_minus_half_the_slope_of_the_loss(noise):
    flow = IsoFlow(3, 0.7, noise)
    h = 1e-5
    numeric = -(flow.loss_of(0.8 + h) - flow.loss_of(0.8 - h)) / (4 * h)
    assert flow.velocity(0.8) == pytest.approx(numeric, rel=1e-7)


def test_noise_lowers_the_best_gamma():
    assert IsoFlow(4, 1.0, 0.5).best_gamma < IsoFlow(4, 1.0).best_gamma


# fixed covariance


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_closed_form_solves_equation_10(depth):
    flow = FixedCovarianceFlow(spectrum_of([1.0, 0.5, 0.2], [1.0, 2.0, 0.7]), depth)
    t, h = 3.0, 1e-5
    lam, omega = flow.spectrum.eigenvalues, flow.spectrum.task_power
    gamma = flow.modes([t])[0]
    numeric = (flow.modes([t + h])[0] - flow.modes([t - h])[0]) / (2 * h)
    np.testing.assert_allclose(numeric, omega * lam**2 * (1 - lam * gamma / depth) ** (2 * depth - 1), rtol=1e-6)
    np.testing.assert_allclose(
        np.diag(flow.modes(np.sort(flow.half_times))[np.argsort(np.argsort(flow.half_times))]), flow.fixed_point / 2
    )


def test_infinite_depth_has_a_two_where_a_four_is_printed():
    spectrum = spectrum_of([1.0, 0.5])
    deep, printed = FixedCovarianceFlow(spectrum, 10**6), PrintedFixedCovarianceFlow(spectrum)
    right = FixedCovarianceFlow(spectrum, np.inf)
    np.testing.assert_allclose(right.modes([7.0]), deep.modes([7.0]), rtol=1e-5)
    assert (printed.modes([7.0]) > 1.2 * deep.modes([7.0])).all()
    np.testing.assert_allclose(right.modes([7.0])[0], np.log(1 + 2 * np.array([1, 0.125]) * 7) / np.array([2, 1.0]))


@pytest.mark.parametrize(("capacity", "source"), [(1.5, 0.7), (2.0, 1.0), (1.0, 0.7), (0.8, 0.7)])
def test_the_exponent_of_result_4_is_the_corrected_one(capacity, source):
    times = np.geomspace(1e7, 1e10, 12)
    flow = FixedCovarianceFlow(power_law(capacity, source, 10**9), np.inf, per_direction=False)
    found = slope(times, flow.loss(times))
    right = laws.fixed_covariance_time_exponent(capacity, source)
    assert found == pytest.approx(right, rel=0.002)
    assert abs(found - laws.printed_fixed_covariance_time_exponent(capacity, source)) > 20 * abs(found - right)


def test_out_of_distribution_loss_by_hand():
    same, twice = np.diag([1.0, 0.5]), np.diag([2.0, 1.0])
    assert out_of_distribution_loss(same, same, np.eye(2), 3) == 0
    assert out_of_distribution_loss(same, twice, np.eye(2), 3) == pytest.approx((2 + 1) / 2)


# rotated covariances


@pytest.mark.parametrize("capacity", [1.5, 1.0])  # at nu = 1 the inputs' variance has no sum, and the laws are there
def test_time_and_depth_exponents_of_rotated_data(capacity):
    times, wide = np.geomspace(1e5, 1e8, 12), power_law(capacity, 0.7, 10**12)
    flow = RotatedFlow(wide, np.inf, per_direction=False)
    assert slope(times, flow.loss(times)) == pytest.approx(laws.time_exponent(capacity, 0.7), rel=0.002)
    losses = [RotatedFlow(wide, depth, per_direction=False).final_loss for depth in (256, 512)]
    assert 0.7 < np.log2(losses[0] / losses[1]) < 1.06 * 0.7  # approached from above


def test_the_best_gamma_tends_to_two_and_not_one_depth_over_the_top_eigenvalue():
    ratios = [RotatedFlow(WIDE, depth).best_gamma / depth for depth in (8, 64, 512)]
    assert ratios == sorted(ratios)
    assert ratios[-1] == pytest.approx(2, rel=0.01)


def test_full_attention_is_the_flow_of_five_factors():
    spectrum, depth, t, h = spectrum_of([1.0, 0.5]), 3, 2.0, 1e-4
    flow = FullAttentionFlow(spectrum, depth, 0.4)
    w = flow.scale([t])[0]
    pace = 2 * w**4 * np.mean([1, 0.25] * (1 - 2 * w**5 * np.array([1, 0.5]) / depth) ** 5)
    assert (flow.scale([t + h])[0] - flow.scale([t - h])[0]) / (2 * h) == pytest.approx(pace, rel=1e-5)
    assert flow.gamma(flow.half_times)[0] == pytest.approx(flow.best_gamma / 2, rel=1e-5)
    assert PrintedFullAttentionFlow(spectrum, depth, 0.4).scale([t])[0] < w


def test_full_attention_learns_with_its_own_exponent():
    times = np.geomspace(1e6, 1e9, 12)
    flow = FullAttentionFlow(WIDE, np.inf, 0.3, per_direction=False)
    assert slope(times, flow.loss(times)) == pytest.approx(laws.attention_time_exponent(1.5, 0.7), rel=0.005)


# finite width and context


@pytest.mark.parametrize(
    ("dimension", "width", "context", "depth", "gamma", "value"),
    [(64, 32, 64, 8, 12.0, 0.1914820), (128, 64, 32, 64, 90.0, 0.1043822)],
)
def test_check_values_of_the_deterministic_equivalent(dimension, width, context, depth, gamma, value):
    equivalent = DeterministicEquivalent(power_law(1.5, 0.7, dimension), width, context, gamma_max=gamma)
    assert equivalent.loss(gamma, depth) == pytest.approx(value, abs=1e-7)


def sampled_loss(spectrum, width, context, depth, gamma, rng, draws):
    lam, d = spectrum.eigenvalues, len(spectrum.eigenvalues)
    losses = []
    for _ in range(draws):
        x = rng.standard_normal((context, d)) * np.sqrt(lam)
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0][:, :width]
        step = np.eye(d) - gamma / depth * basis @ (basis.T @ (x.T @ x)) / context
        power = np.linalg.matrix_power(step, depth)
        losses.append((lam[:, None] * power**2 * spectrum.task_power).sum())
    return np.mean(losses), np.std(losses) / np.sqrt(draws)


@pytest.mark.parametrize(("width", "context"), [(32, 64), (64, 40), (40, 1000)])
def test_the_deterministic_equivalent_agrees_with_sampled_matrices_on_a_smooth_spectrum(width, context, rng):
    spectrum = spectrum_of(np.linspace(0.5, 1.5, 64), np.linspace(2.0, 0.5, 64) / 64)
    expected = DeterministicEquivalent(spectrum, width, context, gamma_max=1.0).loss(0.8, 4)
    mean, error = sampled_loss(spectrum, width, context, 4, 0.8, rng, 200)
    assert mean == pytest.approx(expected, abs=4 * error + 0.01 * expected)  # its bias is of order 1/D


def test_without_bottlenecks_the_equivalent_is_the_plain_sum():
    spectrum = power_law(1.5, 0.7, 50)
    plain = RotatedFlow(spectrum, 6, per_direction=False)
    for sizes in [(np.inf, np.inf), (50, 1e12)]:
        equivalent = DeterministicEquivalent(spectrum, *sizes, gamma_max=8.0)
        assert equivalent.loss(7.0, 6) == pytest.approx(plain.loss_of(7.0), rel=1e-8)
        assert equivalent.loss(0.0, 6) == pytest.approx(plain.loss_of(0.0), rel=1e-8)


def test_the_bottlenecks_are_the_limits_of_long_and_deep_training():
    spectrum = power_law(1.5, 0.7, 64)
    for sizes, limit in [((16, np.inf), width_bottleneck(spectrum, 16)), ((64, 16), context_bottleneck(spectrum, 16))]:
        equivalent = DeterministicEquivalent(spectrum, *sizes, gamma_max=4000.0)
        assert equivalent.loss(4000.0, 4000) == pytest.approx(limit, rel=0.01)


@pytest.mark.parametrize("source", [0.5, 1.5, 2.5])
def test_width_and_context_laws_saturate_where_the_printed_ones_do_not(source):
    spectrum = power_law(1.5, source, 10**8)
    sizes = np.geomspace(256, 4096, 8)
    width = slope(sizes, [width_bottleneck(spectrum, n) for n in sizes])
    context = slope(sizes, [context_bottleneck(spectrum, n) for n in sizes])
    assert width == pytest.approx(laws.width_exponent(1.5, source), rel=0.02)
    assert context == pytest.approx(laws.context_exponent(1.5, source), rel=0.02)
    assert (abs(width / laws.printed_bottleneck_exponent(1.5, source) - 1) > 0.2) == (source > 1)
    assert printed_bottleneck(spectrum, 300.0) < width_bottleneck(spectrum, 300.0)


def test_the_best_shape_exponent_is_that_of_the_narrower_law():
    assert laws.shape_exponent(1.5, 0.7) == laws.printed_shape_exponent(1.5, 0.7) == 1.5
    assert laws.shape_exponent(1.5, 1.5) == laws.fixed_time_shape_exponent(1.5, 1.5) == pytest.approx(6 / 7)
    assert laws.fixed_time_shape_exponent(2.5, 1.25) == 2.5  # more depth lowers the cross term at fixed N^2 L


# one layer under SGD


def test_wishart_moments_by_their_closed_forms():
    p, d = 5, 3
    assert wishart_moment((1,), d, p) == pytest.approx(d)
    assert wishart_moment((2,), d, p) * p**2 == pytest.approx(p * d * (p + d + 1))
    assert wishart_moment((1, 2), d, p) * p**3 == pytest.approx(p * d * (p + d + 1) * (p * d + 4))
    assert wishart_moment((2, 2), 1, p) * p**4 == pytest.approx(p * (p + 2) * (p + 4) * (p + 6))
    quartic = p**3 + d**3 + 6 * (p**2 * d + p * d**2) + 6 * (p**2 + d**2) + 17 * p * d + 21 * (p + d) + 20
    assert wishart_moment((4,), d, p) * p**4 == pytest.approx(p * d * quartic)


def test_check_value_of_one_layer_sgd_and_its_largest_learning_rate():
    theory = ShallowSGD(16, 16, 16, 16, 0.1)
    assert theory.distances(40)[-1] == pytest.approx(0.3632, abs=5e-5)
    assert ShallowSGD(16, 16, 16, 16, 0.235).growth < 1 < ShallowSGD(16, 16, 16, 16, 0.245).growth


def test_one_layer_sgd_agrees_with_simulation(rng):
    d, p, k, b, eta, noise, steps, copies = 6, 5, 4, 3, 0.08, 0.3, 12, 4000
    gamma = np.zeros((copies, d, d))
    for _ in range(steps):
        x, tests = rng.standard_normal((copies, b, p, d)), rng.standard_normal((copies, b, k, d))
        beta = rng.standard_normal((copies, b, d))
        label = np.einsum("cbpd,cbd->cbp", x, beta) + np.sqrt(noise * d) * rng.standard_normal((copies, b, p))
        v = np.einsum("cbpd,cbp->cbd", x, label) / p
        error = beta - np.einsum("cij,cbj->cbi", gamma, v)
        u = np.einsum("cbkd,cbk->cbd", tests, np.einsum("cbkd,cbd->cbk", tests, error)) / k
        gamma = gamma + eta * np.einsum("cbi,cbj->cij", u, v) / b
    theory = ShallowSGD(d, p, k, b, eta, noise)
    g1, g2 = np.trace(gamma, axis1=1, axis2=2) / d, (gamma**2).sum((1, 2)) / d
    losses = 1 - 2 * g1 + theory.rho * g2
    assert theory.losses(steps)[-1] == pytest.approx(losses.mean(), abs=4 * losses.std() / np.sqrt(copies))


def test_large_dimensions_tend_to_the_printed_recursion_started_at_its_own_definition():
    printed = printed_losses(1, 1, 1, 0.1, 6, start=0.25)
    assert printed[0] == pytest.approx(1)
    assert printed_losses(1, 1, 1, 0.1, 6)[0] == pytest.approx(1.75)  # C(0) = 1 as printed cannot be right
    gaps = [np.abs(ShallowSGD(d, d, d, d, 0.1).distances(6) - printed).max() for d in (16, 64, 256)]
    assert gaps[0] > 3 * gaps[1] > 9 * gaps[2]


# what is refused


@pytest.mark.parametrize("depth", [0, -1, 1.5, np.nan])
def test_depths_that_are_no_depth_are_refused(depth):
    for make in (
        lambda: IsoFlow(depth, 1.0),
        lambda: RotatedFlow(WIDE, depth),
        lambda: FixedCovarianceFlow(WIDE, depth),
    ):
        with pytest.raises(ValueError, match="at least one layer"):
            make()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: power_law(0.0, 0.7, 10), "capacity .* above 0"),
        (lambda: laws.width_exponent(1.0, 0.7), "capacity .* above 1"),
        (lambda: power_law(1.5, 0.0, 10), "source .* above 0"),
        (lambda: power_law(1.5, 0.7, 0), "at least one"),
        (lambda: laws.shape_exponent(0.5, 1.0), "capacity"),
        (lambda: spectrum_of([1.0, 0.0]), "eigenvalues: every entry"),
        (lambda: spectrum_of([1.0], [-1.0]), "task_power: every entry"),
        (lambda: DeterministicEquivalent(WIDE, 0, gamma_max=1.0), "width is 0"),
        (lambda: DeterministicEquivalent(power_law(1.5, 0.7, 8), 9, gamma_max=1.0), "width is 9"),
        (lambda: DeterministicEquivalent(WIDE, 8, 0, gamma_max=1.0), "context is 0"),
        (lambda: DeterministicEquivalent(power_law(1.5, 0.7, 8), 4, gamma_max=1.0).loss(2.0, 4), "gamma_max"),
        (lambda: width_bottleneck(power_law(1.5, 0.7, 8), 8), "width is 8"),
        (lambda: IsoFlow(1, 0.0), "ratio"),
        (lambda: IsoFlow(1, 1.0, -1.0), "noise"),
        (lambda: FullAttentionFlow(WIDE, 2, 0.0), "zero never leaves zero"),
        (lambda: ShallowSGD(0, 1, 1, 1, 0.1), "dimension is 0"),
        (lambda: RotatedFlow(WIDE, 2).loss([-1.0]), "times must"),
    ],
)
def test_impossible_settings_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
