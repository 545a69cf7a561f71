"""Exponents of the scaling laws (paper 003, Results 4, 8, 9), printed and corrected.

A loss falls as resource^-exponent when nothing else is scarce. nu is the capacity and beta the source exponent of
Eq 17. Corrections: Result 4's time law, whose sum Eq 89 has -2 nu - nu beta where omega lambda^3 goes as
k^(-2 nu - nu beta - 1), and whose loss is k^(-nu beta), not k^-beta, at the last learned mode; the width law, because
directions already learned still leak through a random projection (order kappa ~ N^-nu); the context law, for the same
reason at order kappa^2; and with the width law the optimal shape.
"""

from models.depth_and_context.spectrum import check_exponents


def fixed_covariance_time_exponent(capacity: float, source: float) -> float:
    """FS pretraining time: nu beta / (nu beta + 2 nu + 1)."""
    check_exponents(capacity, source)
    return capacity * source / (capacity * source + 2 * capacity + 1)


def printed_fixed_covariance_time_exponent(capacity: float, source: float) -> float:
    """Result 4 and Eq 89 as printed: beta / (nu + nu beta + 1)."""
    check_exponents(capacity, source)
    return source / (capacity + capacity * source + 1)


def time_exponent(capacity: float, source: float) -> float:
    """RRS pretraining time: beta / (2 + beta), Eqs 18 and 97."""
    check_exponents(capacity, source)
    return source / (2 + source)


def attention_time_exponent(capacity: float, source: float) -> float:
    """RRS pretraining time of full attention: 5 beta / (5 beta + 2), Eq 22."""
    check_exponents(capacity, source)
    return 5 * source / (5 * source + 2)


def depth_exponent(capacity: float, source: float) -> float:
    """Depth: beta, Eqs 18 and 100."""
    check_exponents(capacity, source)
    return source


def width_exponent(capacity: float, source: float) -> float:
    """Width: nu min(beta, 1)."""
    check_exponents(capacity, source, summable=True)
    return capacity * min(source, 1.0)


def context_exponent(capacity: float, source: float) -> float:
    """Context length: nu min(beta, 2)."""
    check_exponents(capacity, source, summable=True)
    return capacity * min(source, 2.0)


def printed_bottleneck_exponent(capacity: float, source: float) -> float:
    """Width and context in Eq 18: nu beta."""
    check_exponents(capacity, source, summable=True)
    return capacity * source


def shape_exponent(capacity: float, source: float) -> float:
    """d ln L / d ln N of the best shape at fixed t P^2 N^2 L: nu for beta <= 1, else 1 / (beta - 1 + 1/nu).

    Above beta = 1 the terms to balance are gamma^-beta, N^-1 gamma^-(1 - 1/nu) and N^-nu, and gamma costs depth and
    time. See `fixed_time_shape_exponent` for what changes where time and context cost nothing.
    """
    check_exponents(capacity, source, summable=True)
    return capacity if source <= 1 else 1 / (source - 1 + 1 / capacity)


def fixed_time_shape_exponent(capacity: float, source: float) -> float:
    """The same at fixed N^2 L with endless time and context: for nu above 2 it is nu at every beta.

    On N^2 L = C the middle term is C^-1/2 L^(1/nu - 1/2): above nu = 2 more depth at less width lowers it, until N^-nu
    stops that. Below nu = 2 it is as above, approached slowly: N^-nu is a factor N^(nu - 1 - shape (1 - 1/nu)) smaller
    than the middle term (N^-0.21 at nu = beta = 1.5) but weighs nu / (2/nu - 1) times as much in the balance.
    """
    return capacity if capacity > 2 else shape_exponent(capacity, source)


def printed_shape_exponent(capacity: float, source: float) -> float:
    """Result 8: L ~ N^nu."""
    check_exponents(capacity, source, summable=True)
    return capacity
