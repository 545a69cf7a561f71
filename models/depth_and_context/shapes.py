"""The best shape of a model: which depth belongs to which width where compute is fixed (paper 003, Result 8).

The losses are those of the deterministic equivalent, which is tabulated once per width and context; any depth and gamma
then cost a quadratic form. gamma grows by d gamma / dt = -1/2 d loss / d gamma, so time is a quadrature in gamma. A
projection of rank N shrinks what the model sees by about N/D, and with it the pace of training; the paper leaves the
scale of A open, and here gamma is counted in units in which the largest eigenvalue seen is 1, as it is at full width.
Compute is N^2 L where time and context are endless, and t P^2 N^2 L, as the paper counts it, where they are not.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Shaped

from models.depth_and_context.deterministic_equivalent import DeterministicEquivalent
from models.depth_and_context.spectrum import Spectrum

_REACH = 2.2  # gamma x edge / depth beyond which every depth diverges

Values = Float64[np.ndarray, " _"]
Depths = Shaped[np.ndarray, " _"]  # whole numbers
Shapes = Float64[np.ndarray, "budgets 2"]


@dataclass(frozen=True)
class Course:
    """Loss and time along gamma, up to where the loss is smallest, of one depth."""

    log_times: Values
    losses: Values

    def at(self, log_times: Values) -> Values:
        """The loss at these times; before the first it is that of gamma = 0, in effect."""
        return np.interp(log_times, self.log_times, self.losses)


def equivalent_for(spectrum: Spectrum, width: float, context: float, depths: Depths) -> DeterministicEquivalent:
    """One table for all these depths and every gamma at which they do not diverge."""
    edge = DeterministicEquivalent(spectrum, width, context, gamma_max=1.0).edge
    return DeterministicEquivalent(spectrum, width, context, gamma_max=_REACH * float(max(depths)) / edge)


def course_of(equivalent: DeterministicEquivalent, depth: int, count: int = 90) -> Course:
    """Training at one depth: time by quadrature of d gamma / (-1/2 d loss / d gamma), over ln gamma."""
    from scipy.interpolate import CubicSpline

    _, best = lowest(equivalent, depth)
    log_gamma = np.linspace(np.log(1e-2), np.log(best * equivalent.edge), count)
    losses = np.array([equivalent.loss(float(gamma), depth) for gamma in np.exp(log_gamma) / equivalent.edge])
    curve = CubicSpline(log_gamma, np.log(losses))
    fine = np.linspace(log_gamma[0], log_gamma[-1], 20 * count)[:-1]  # at the end itself time is infinite
    log_losses = curve(fine)
    fall = np.maximum(-curve(fine, 1) * np.exp(log_losses), 1e-300)  # -d loss / d ln gamma
    pace = 2 * np.exp(2 * fine) / fall  # dt / d ln gamma
    steps = np.cumsum((pace[1:] + pace[:-1]) / 2) * (fine[1] - fine[0])
    times = pace[0] + np.concatenate(([0.0], steps))  # up to the first gamma, t is proportional to it
    return Course(np.log(times), np.exp(log_losses))


def lowest(equivalent: DeterministicEquivalent, depth: int) -> tuple[float, float]:
    """The smallest loss over gamma, and that gamma."""
    from scipy.optimize import minimize_scalar

    high = np.log(_REACH * depth / equivalent.edge)

    def log_loss(log_gamma: float) -> float:
        return float(np.log(equivalent.loss(float(np.exp(log_gamma)), depth)))

    found = minimize_scalar(log_loss, bounds=(high - 3.5, high), method="bounded", options={"xatol": 1e-6})
    log_gamma = float(getattr(found, "x"))  # noqa: B009
    return equivalent.loss(float(np.exp(log_gamma)), depth), float(np.exp(log_gamma))


def best_losses(spectrum: Spectrum, widths: Values, depths: Depths) -> np.ndarray:
    """The smallest loss over gamma [widths, depths] at endless time and context."""
    rows = []
    for width in widths:
        equivalent = equivalent_for(spectrum, float(width), np.inf, depths)
        rows.append([lowest(equivalent, int(depth))[0] for depth in depths])
    return np.array(rows)


def best_shapes(losses: np.ndarray, widths: Values, depths: Depths, budgets: int = 60) -> Shapes:
    """ln N and ln L of the smallest loss at fixed N^2 L, for budgets at which it lies inside the table."""
    n, depth = np.log(widths), np.log(depths)
    found = [
        _along_budget(np.log(losses), n, depth, total)
        for total in np.linspace(2 * n[0], 2 * n[-1] + depth[-1], budgets)
    ]
    return np.array([shape for shape in found if shape is not None]).reshape(-1, 2)


def full_compute_shapes(
    spectrum: Spectrum, widths: Values, depths: Depths, contexts: Values, budgets: int = 60
) -> Shapes:
    """The same at fixed t P^2 N^2 L, with the best time and context at each width and depth."""
    p = np.log(contexts)
    rests = np.linspace(2 * p[0] - 4, 2 * p[-1] + 30, 2000)  # ln of t P^2
    table = np.empty((2, len(rests), len(widths), len(depths)))
    for i, width in enumerate(widths):
        equivalents = [equivalent_for(spectrum, float(width), float(context), depths) for context in contexts]
        for j, depth in enumerate(depths):
            table[:, :, i, j] = _best_rest([course_of(one, int(depth)) for one in equivalents], p, rests)
    n, depth = np.log(widths), np.log(depths)
    spent = 2 * n[:, None] + depth
    found = []
    for total in np.linspace(rests[0] + spent.max(), rests[-1] + spent.min(), budgets):
        losses, chosen = (
            np.array(
                [[np.interp(total - spent[i, j], rests, t[:, i, j]) for j in range(len(depth))] for i in range(len(n))]
            )
            for t in table
        )
        found.append(_lowest_inside(losses, chosen, n, depth, p))
    return np.array([shape for shape in found if shape is not None]).reshape(-1, 2)


def _best_rest(courses: list[Course], log_context: Values, rests: Values) -> tuple[Values, Values]:
    """ln of the smallest loss at each t P^2, over contexts between those tabulated, and ln of that context."""
    from scipy.interpolate import RectBivariateSpline

    log_times = np.linspace(rests[0] - 2 * log_context[-1], rests[-1] - 2 * log_context[0], 2500)
    surface = RectBivariateSpline(log_context, log_times, np.log([course.at(log_times) for course in courses]), ky=1)
    fine = np.linspace(log_context[0], log_context[-1], 12 * len(log_context))
    losses = surface(np.broadcast_to(fine, (len(rests), len(fine))), rests[:, None] - 2 * fine, grid=False)
    return losses.min(1), fine[losses.argmin(1)]


def _lowest_inside(
    log_losses: np.ndarray, contexts: np.ndarray, n: Values, depth: Values, p: Values
) -> tuple[float, float] | None:
    """Where a table [widths, depths] is lowest, if width, depth and the context chosen there are all inside."""
    from scipy.interpolate import RectBivariateSpline

    fine_n, fine_depth = np.linspace(n[0], n[-1], 400), np.linspace(depth[0], depth[-1], 400)
    i, j = np.unravel_index(np.argmin(RectBivariateSpline(n, depth, log_losses)(fine_n, fine_depth)), (400, 400))
    context = float(RectBivariateSpline(n, depth, contexts, kx=1, ky=1)(fine_n[i], fine_depth[j])[0, 0])
    inside = 0 < i < 399 and 0 < j < 399 and p[0] + 0.05 < context < p[-1] - 0.05
    return (float(fine_n[i]), float(fine_depth[j])) if inside else None


def _along_budget(log_losses: np.ndarray, n: Values, depth: Values, total: float) -> tuple[float, float] | None:
    """The shape of smallest loss on 2 n + depth = total, if that is inside the table."""
    from scipy.interpolate import RectBivariateSpline

    surface = RectBivariateSpline(n, depth, log_losses)
    fine = np.linspace(n[0], n[-1], 2000)
    there = total - 2 * fine
    inside = (there > depth[0]) & (there < depth[-1])
    if inside.sum() < 3:
        return None
    losses = surface(fine[inside], there[inside], grid=False)
    i = int(np.argmin(losses))
    return (float(fine[inside][i]), float(there[inside][i])) if 0 < i < inside.sum() - 1 else None
