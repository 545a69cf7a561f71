"""Theory of paper 003: best shapes, and all weights of linear attention in training."""

import numpy as np
import pytest

from models.depth_and_context.attention_theory import IsoAttentionFlow, PrintedIsoAttentionFlow, six_scales
from models.depth_and_context.shapes import best_shapes, course_of, equivalent_for
from models.depth_and_context.spectrum import power_law
from models.depth_and_context.theory import IsoFlow, RotatedFlow, wishart_spectrum


def test_a_course_of_training_ends_at_the_best_loss_and_takes_the_time_of_the_flow():
    spectrum = power_law(1.5, 1.0, 64)
    equivalent = equivalent_for(spectrum, np.inf, np.inf, np.array([4]))
    course, flow = course_of(equivalent, 4), RotatedFlow(spectrum, 4, per_direction=False)
    np.testing.assert_allclose(course.losses[-1], flow.final_loss, rtol=1e-3)
    np.testing.assert_allclose(course.at(np.log([0.3, 3.0, 30.0])), flow.loss([0.3, 3.0, 30.0]), rtol=1e-3)


def test_the_best_shape_of_losses_that_just_add_is_where_their_slopes_balance():
    widths, depths = np.geomspace(8, 4096, 12), 2.0 ** np.arange(1, 14)
    losses = widths[:, None] ** -1.5 + depths**-1.0
    shapes = best_shapes(losses, widths, depths)
    assert np.polyfit(*shapes.T, 1)[0] == pytest.approx(1.5, rel=0.02)


def test_in_six_scales_differences_of_squares_are_conserved_and_the_loss_falls():
    spectrum, start = power_law(1.5, 1.0, 16), [0.3, 0.4, 0.5, 0.4, 0.6, 0.5]
    o, v, q, k, x, y = six_scales(spectrum, 3, start, [0.0, 1.0, 30.0, 1000.0]).T
    for difference in (o**2 - y**2, v**2 - q**2, q**2 - k**2, x**2 - 2 * k**2):
        np.testing.assert_allclose(difference, difference[0], atol=1e-6)
    lam = spectrum.eigenvalues
    left = (1 - np.outer(v * q * k * x**2, lam) / 3) ** 3
    losses = spectrum.total(lam * spectrum.task_power * (1 - (o * y)[:, None] * (1 - left)) ** 2)
    assert (np.diff(losses) < 0).all()


def test_attention_on_isotropic_data_is_the_reduced_flow_in_other_coordinates():
    flow, plain = IsoAttentionFlow(3, 2.0, 0.5), IsoFlow(3, 2.0)
    assert flow.final_loss == pytest.approx(plain.final_loss)
    w = flow.scale([0.4, 0.4001])
    gamma = 2 * w**5
    pace = np.diff(gamma)[0] / 1e-4
    assert pace == pytest.approx(20 * w[0] ** 8 * plain.velocity(gamma[0]), rel=1e-2)
    assert PrintedIsoAttentionFlow(3, 2.0, 0.5).gamma([0.4])[0] < gamma[0]


def test_the_spectrum_of_a_finite_dimension_tends_to_marchenko_and_pastur():
    small, large = (IsoFlow(2, 1.0, spectrum=wishart_spectrum(d, d, 300)).final_loss for d in (8, 64))
    limit = IsoFlow(2, 1.0).final_loss
    assert small > large > limit
    assert large == pytest.approx(limit, rel=0.03)
