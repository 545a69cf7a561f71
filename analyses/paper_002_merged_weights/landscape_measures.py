"""What section 5 and Appendices A, C of paper 002 are judged by: the loss as a form, its minima, u and the steepness."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import minimize

from analyses.paper_002_merged_weights.runs import Group, of_context, random_covariances
from analyses.tools.claims import Measured
from analyses.tools.source import Source
from models.merged_weights.landscape import RandomCovariance, least_value, pl_constant, printed_final_value, steepness
from models.merged_weights.theory import MergedFlow, largest_init

TIMES = np.concatenate(([0.0], np.geomspace(1e-2, 1e3, 300)))
LONG = 1e4  # far beyond every relaxation
CLOSE_TO_BOUND = 0.9  # of the largest start that a theorem allows
DRAWS = {"toy": 20000, "quick": 1000000, "paper": 4000000}


@dataclass(frozen=True)
class Seen:
    """The trained runs, whose starts the flows take, and the means over random covariances."""

    source: Source
    fixed: Group
    random: Group
    law: RandomCovariance

    @cached_property
    def flows(self) -> dict[str, list[MergedFlow]]:
        """From the starts of the runs, and from these made nearly as large as Theorem 4.1 allows."""
        c = self.fixed.config
        grow = CLOSE_TO_BOUND * largest_init(c.eigenvalues, c.context) / c.init
        return {"as trained": self.fixed.flows, "near the bound": [larger(flow, grow) for flow in self.fixed.flows]}

    @cached_property
    def random_flows(self) -> dict[str, list[MergedFlow]]:
        """The same for random covariances and Theorem 4.5; a start that is too large already is made smaller."""
        near = [
            larger(flow, CLOSE_TO_BOUND * self.law.largest_init(shape_of(flow)) / flow.start[0])
            for flow in self.random.flows
        ]
        return {"as trained": self.random.flows, "near the bound": near}


def gather(source: Source) -> Seen:
    """Train or load, and draw covariances."""
    random = random_covariances(source)
    rng = np.random.default_rng(int(source.is_fresh))
    law = RandomCovariance.exponential(random.config.eigenvalues, random.config.context, DRAWS[source.size], rng)
    return Seen(source, of_context(20, source), random, law)


def larger(flow: MergedFlow, grow: float) -> MergedFlow:
    """The flow from the same start, made larger."""
    return MergedFlow(flow.moments, grow * flow.start[0], grow * flow.start[1:].reshape(flow.moments.cost.shape))


def shape_of(flow: MergedFlow) -> np.ndarray:
    """Theta Theta^T of the start."""
    return flow.start[1:].reshape(flow.moments.cost.shape) / flow.start[0]


def quadratic_form(seen: Seen) -> Measured:
    """u^T H u against Eq 3.6 on random prompts and weights: the largest difference of each."""
    off = [abs(one["form"] / one["answer"] - 1) for one in _random_prompts(seen)]
    return Measured(
        f"largest difference from Eq 3.6, relative: {max(off):.0e}",
        np.array([max(off)]),
        n=f"the worst of {len(off)} prompts",
    )


def not_convex(seen: Seen) -> Measured:
    """Whether H of a random prompt has d + 1 negative eigenvalues."""
    d, prompts = len(seen.fixed.config.eigenvalues), _random_prompts(seen)
    counts = [int((one["eigenvalues"] < -1e-9).sum()) for one in prompts]
    text = f"negative eigenvalues of H, d = {d}: {', '.join(map(str, sorted(set(counts))))} in {len(counts)} prompts"
    return Measured(text, (np.array(counts) >= d + 1).astype(float), n=f"{len(counts)} prompts")


def every_minimum(which: str) -> Callable[[Seen], Measured]:
    """Minimised from random weights by another route than the flow: how far u U is from the printed minima."""

    def measure(seen: Seen) -> Measured:
        flow, rng, off, values = getattr(seen, which).flows[0], np.random.default_rng(0), [], []
        d = len(flow.fixed_point)
        for _ in range(12):
            found = minimize(
                lambda x: float(flow.loss_of(x[0], x[1:].reshape(d, d))),
                rng.standard_normal(1 + d * d),
                jac=lambda x: -flow.velocity(x),
                method="BFGS",
                options={"gtol": 1e-10, "maxiter": 5000},
            )
            product = found.x[0] * found.x[1:].reshape(d, d)
            off.append(np.linalg.norm(product - np.diag(flow.fixed_point)) / np.linalg.norm(flow.fixed_point))
            values.append(float(found.fun) - flow.moments.power / 2)
        least = -0.5 * float((flow.moments.gain * flow.fixed_point).sum())
        there = np.array(values) < min(values) + 1e-9
        elsewhere = f"; {(~there).sum()} searches that stop above it left out" if not there.all() else ""
        text = f"least value found {min(values):.6f}, printed {least:.6f}; there u U is off by at most {np.array(off)[there].max():.0e}"
        worst = max(np.array(off)[there].max(), abs(min(values) / least - 1))
        return Measured(
            text + elsewhere, np.array([worst]), n=f"the worst of {there.sum()} searches from random weights"
        )

    return measure


def inequality(seen: Seen) -> Measured:
    """mu x loss above the least / squared gradient, the largest along each flow: at most 1 if the inequality holds."""
    return _kept(
        "mu (loss above the least) / squared gradient", seen.flows, lambda flow: _used(flow, mu_of(seen, flow))
    )


def u_stays_away(seen: Seen) -> Measured:
    """The bound of Lemma A.5 over the least u of each flow."""
    return _kept(
        "bound of Eq A.14 / least u", seen.flows, lambda flow: floor_of(seen, flow) / flow.weights(TIMES)[0].min()
    )


def u_stays_positive(seen: Seen) -> Measured:
    """Whether u is above zero all along each flow, of both kinds of covariances."""
    flows = [flow for kind in (seen.flows, seen.random_flows) for each in kind.values() for flow in each]
    least = np.array([flow.weights(TIMES)[0].min() / flow.start[0] for flow in flows])
    return Measured(f"least u / u(0): {least.min():.3f}", (least > 0).astype(float))


def loss_falls_at_mu(seen: Seen) -> Measured:
    """The loss above the least over exp(-mu t) times its start, the largest along each flow."""

    def worst(flow: MergedFlow) -> float:
        _, above = steepness(flow, TIMES)
        return float((above / (above[0] * np.exp(-mu_of(seen, flow) * TIMES))).max())

    return _kept("loss above the least / its exponential bound", seen.flows, worst)


def random_start(seen: Seen) -> Measured:
    """The loss above the least long after a start just below Eq 4.10."""
    off = np.array([abs(float(f.loss([LONG])[0]) - f.final_loss) for f in seen.random_flows["near the bound"]])
    bounds = [seen.law.largest_init(shape_of(flow)) for flow in seen.random.flows]
    text = f"bound sigma < {min(bounds):.3f} to {max(bounds):.3f}; loss above the least at t = {LONG:g}: at most {off.max():.0e}"
    return Measured(text, off)


def random_u(as_stated: bool) -> Callable[[Seen], Measured]:
    """The bound of Lemma C.7 over the least u of each flow."""

    def ratio(seen: Seen) -> Measured:
        def of(flow: MergedFlow) -> float:
            floor = seen.law.least_value(float(flow.start[0]), shape_of(flow), as_stated=as_stated)
            return floor / float(flow.weights(TIMES)[0].min())

        return _kept("bound / least u", seen.random_flows, of)

    return ratio


def random_inequality(seen: Seen) -> Measured:
    """nu x loss above the least / squared gradient, the largest along each flow."""

    def of(flow: MergedFlow) -> float:
        return _used(flow, seen.law.pl_constant(flow, float(flow.start[0]), shape_of(flow)))

    return _kept("nu (loss above the least) / squared gradient", seen.random_flows, of)


def limit_of_u(printed: bool) -> Callable[[Seen], Measured]:
    """u long after the start of each run, by Eq C.15 as printed or with the squares."""

    def measure(seen: Seen) -> Measured:
        ends = np.array([flow.weights([LONG])[0][0] for flow in seen.random.flows])
        flow = seen.random.flows[0]
        limit = printed_final_value(flow) if printed else float(np.linalg.norm(flow.fixed_point) ** 0.5)
        return Measured(f"flow at t = {LONG:g}: u = {ends.mean():.4f}; this is {limit:.4f}", ends / limit)

    return measure


def mean_of_squares(seen: Seen) -> Measured:
    """||E[Lambda] Theta||² over E ||Lambda Theta||² for the start of each run."""
    shapes = [shape_of(flow) for flow in seen.random.flows]
    ratio = np.array([seen.law.mean_then_square(shape) / seen.law.square_then_mean(shape) for shape in shapes])
    return Measured(f"||E[Λ] Θ||² / E ||Λ Θ||²: {ratio.mean():.2f} for Exponential(1) eigenvalues", ratio)


def mu_of(seen: Seen, flow: MergedFlow) -> float:
    """The printed constant for the start of a flow."""
    c = seen.fixed.config
    return pl_constant(c.eigenvalues, c.context, float(flow.start[0]), shape_of(flow))


def floor_of(seen: Seen, flow: MergedFlow) -> float:
    """What Lemma A.5 says u of a flow stays above."""
    c = seen.fixed.config
    return least_value(c.eigenvalues, c.context, float(flow.start[0]), shape_of(flow))


def _used(flow: MergedFlow, constant: float) -> float:
    """The share of an inequality of Polyak and Lojasiewicz that is used up; what is lost in rounding is left out."""
    squares, above = steepness(flow, TIMES)
    known = above > 1e-9 * above[0]
    return float((constant * above[known] / squares[known]).max())


def _kept(what: str, flows: dict[str, list[MergedFlow]], measure: Callable[[MergedFlow], float]) -> Measured:
    each = {name: np.array([measure(flow) for flow in some]) for name, some in flows.items()}
    told = "; ".join(f"start {name}: at most {v.max():.2g}" for name, v in each.items())
    return Measured(f"{what}, {told}", np.concatenate([*each.values()]))


def _random_prompts(seen: Seen, count: int = 24) -> Sequence[dict]:
    """Answers of Eq 3.6 and of u^T H u for random prompts and weights, and the eigenvalues of H."""
    rng, s, n = np.random.default_rng(int(seen.source.is_fresh)), np.array(seen.fixed.config.eigenvalues), 20
    d, found = len(s), []
    for _ in range(count):
        x, w, weights = (
            rng.standard_normal((n + 1, d)) * np.sqrt(s),
            rng.standard_normal(d),
            rng.standard_normal((d + 1, d + 1)),
        )
        tokens = np.vstack((x.T, np.append(x[:-1] @ w, 0.0)))
        gram, query = tokens @ tokens.T / n, x[-1]
        swap = np.zeros((d + 1, d + 1))
        swap[:d, d] = swap[d, :d] = query
        form, u = 0.5 * np.kron(swap, gram), weights.ravel(order="F")  # columns, one under the other
        answer = weights[:, d] @ gram @ weights[:, :d] @ query
        found.append({"answer": answer, "form": u @ form @ u, "eigenvalues": np.linalg.eigvalsh(form)})
    return found
