"""What is measured for section 3 and Appendices E, J of paper 004: closed forms beside the full flow, and trained runs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np

from analyses.paper_004_sparse_tasks.runs import Group
from analyses.tools.claims import Measured, by_group
from analyses.tools.verdicts import percent, spread
from models.multitask_sparse.task import PowerLaw, power_law_tasks
from models.multitask_sparse.theory import (
    Corrected,
    FirstOrder,
    FullFlow,
    PrintedFirstOrder,
    TaskFlow,
    ZerothOrder,
    aligned_start,
    uniform_start,
)
from probes import Alignment, align

CONTEXTS = (5.0, 100.0)
LONG = CONTEXTS[-1]  # the context length that Assumption 3.1 is about
LENGTHS = np.geomspace(5, 1000, 12)
TOLD = (0, 4, 7, 11)  # lengths whose errors are told
STRENGTH, INIT = 0.5, 0.01
STARTS = ((0.01, 0.02), (0.1, 0.5), (0.3, 0.1))  # f(0) and C that P is made of
FAR = 4.0  # w = 5 v, a start at which the constant C matters


@dataclass(frozen=True)
class Seen:
    """Runs by context length, each beside its full flow."""

    groups: dict[float, Group]

    @cached_property
    def alignments(self) -> dict[float, list[Alignment]]:
        """Every run beside Eq 9 for the data it drew."""
        return {
            psi: [align(run, group.flow(FullFlow, i)) for i, run in enumerate(group.runs)]
            for psi, group in self.groups.items()
        }


class WithEquation40(ZerothOrder):
    """Theorem 3.1 with C = g h, as the first half of Eq 40 says, instead of g h / 2."""

    def _project(self, along, weight, rate) -> None:
        super()._project(along, weight, rate)
        self.constant = 2 * self.constant


class WithEquation58(ZerothOrder):
    """Eq 58: the logistic function with 2 a lambda in the exponent, where lambda is 2 Lambda."""

    def _closed_form(self, times: np.ndarray) -> np.ndarray:
        return super()._closed_form(2 * times)


_NEAR, _FAR = partial(uniform_start, init=INIT), partial(uniform_start, init=INIT, offset=FAR)
_ALONG, _BALANCED = partial(aligned_start, output=0.01, offset=0.1), partial(uniform_start, init=INIT, offset=0.0)
FORMS: dict[str, tuple[type[TaskFlow], Callable]] = {
    "Theorem 3.1": (ZerothOrder, _NEAR),
    "corrected": (Corrected, _NEAR),
    "Theorem 3.1, aligned start": (ZerothOrder, _ALONG),
    "first order, printed": (PrintedFirstOrder, _ALONG),
    "first order": (FirstOrder, _ALONG),
    "Theorem 3.1, far start": (ZerothOrder, _FAR),
    "Theorem 3.1 with Eq 40, far start": (WithEquation40, _FAR),
    "Eq 14": (ZerothOrder, _BALANCED),
    "Eq 58": (WithEquation58, _BALANCED),
}
"""Closed forms, and the starts they are tried from."""


@cache
def closed_form_errors() -> dict[str, np.ndarray]:
    """Largest error against the full flow, over Lambda, by closed form and context length."""
    found: dict[str, list[float]] = {name: [] for name in FORMS}
    for psi in LENGTHS:
        tasks = power_law_tasks(PowerLaw(1.8), 1, float(psi), STRENGTH)
        times = np.concatenate(([0], np.geomspace(1e-3, 1e3, 1500))) / psi
        full = {start: FullFlow(tasks, *start(tasks)).modes(times) for _, start in FORMS.values()}
        for name, (kind, start) in FORMS.items():
            difference = kind(tasks, *start(tasks)).modes(times) - full[start]
            found[name].append(float(np.abs(difference).max()) / STRENGTH)
    return {name: np.array(values) for name, values in found.items()}


def _by_length(name: str) -> str:
    return ", ".join(f"ψ = {LENGTHS[i]:.0f}: {closed_form_errors()[name][i]:.1e}" for i in TOLD)


def error_of(name: str, *, from_length: float) -> Callable[[Seen], Measured]:
    """Largest error of a closed form at every length from this one on."""

    def measure(_: Seen) -> Measured:
        used = from_length <= LENGTHS
        n = f"{used.sum()} context lengths of {LENGTHS[used][0]:.0f} - 1000, by Eq 9"
        return Measured(f"largest error of f over Λ: {_by_length(name)}", closed_form_errors()[name][used], n=n)

    return measure


def error_beside(name: str, other: str) -> Callable[[Seen], Measured]:
    """The error of a closed form over that of another one, at lengths where both are small."""

    def measure(_: Seen) -> Measured:
        errors, used = closed_form_errors(), slice(3, 8)
        text = f"largest error over Λ: {_by_length(name)}; {other}: {_by_length(other)}"
        return Measured(text, (errors[name] / errors[other])[used], n="5 context lengths of 21 - 146, by Eq 9")

    return measure


def order_of_first(_: Seen) -> Measured:
    """How fast the error of the corrected first order falls with psi, over 2."""
    errors, used = closed_form_errors()["first order"], slice(3, 8)
    order = float(-np.polyfit(np.log(LENGTHS[used]), np.log(errors[used]), 1)[0])
    text = f"largest error over Λ: {_by_length('first order')}; it falls as ψ^-{order:.2f} (ψ = 21 - 146)"
    return Measured(text, np.array([order / 2]), n="a slope over 5 context lengths, by Eq 9")


def end_of_first(_: Seen) -> Measured:
    """What the first-order term, as printed, leaves of f - Lambda when everything is learned."""
    found = []
    for psi in LENGTHS:
        tasks = power_law_tasks(PowerLaw(1.8), 1, float(psi), STRENGTH)
        found.append(abs(PrintedFirstOrder(tasks, *_ALONG(tasks)).modes([1e4])[0, 0] / STRENGTH - 1))
    text = f"largest |f⁰ + ε f¹ - Λ| / Λ at t = 10⁴: {max(found):.0e}"
    return Measured(text, np.array(found), n=f"{len(LENGTHS)} context lengths")


def start_from(printed: bool) -> Callable[[Seen], Measured]:
    """f(0) that Eq 53 gives with P of Eq 56, or of Theorem 3.1, over the f(0) that P was made from."""

    def measure(_: Seen) -> Measured:
        found = {}
        for f0, c in STARTS:
            size = np.sqrt(4 * STRENGTH**2 + 2 * c)
            top = 4 * f0 * STRENGTH + 2 * c + size * np.sqrt(4 * f0**2 + 2 * c)
            d = 2 * (f0 - STRENGTH)
            p = top / (d * size - 2 * STRENGTH if printed else d * (size - 2 * STRENGTH))
            q = p * (2 * STRENGTH - size) / (2 * STRENGTH + size)
            found[f0, c] = (STRENGTH + size / 2 * (1 / (1 + p) - 1 / (1 + q))) / f0
        text = "f(0) by Eq 53 / f(0): " + ", ".join(f"f(0) = {f}, C = {c}: {r:.3f}" for (f, c), r in found.items())
        return Measured(text, np.array([*found.values()]), n="3 starts")

    return measure


def unexplained(seen: Seen) -> Measured:
    """1 - R^2 of the loss of gradient descent beside the full flow; half-times are told."""
    off = {f"ψ = {p:g}": np.array([1 - a.loss_r2 for a in found]) for p, found in seen.alignments.items()}
    ratios = {f"ψ = {p:g}": np.concatenate([_reached(a) for a in found]) for p, found in seen.alignments.items()}
    text = f"1 - R² of the loss against the full flow: {by_group(off, lambda v: spread(v, 6))}; half-times, measured / "
    return Measured(f"{text}predicted: {by_group(ratios, percent)}", np.concatenate([*off.values()]))


def loss_deviation(kind: type[TaskFlow], contexts: tuple[float, ...]) -> Callable[[Seen], Measured]:
    """Largest relative deviation of each run's test loss from that of a closed form, t >= 0.1; all lengths are told."""

    def measure(seen: Seen) -> Measured:
        found = {psi: _deviation(group, kind) for psi, group in seen.groups.items()}
        text = "largest deviation of the test loss from t = 0.1 on: "
        text += "; ".join(f"ψ = {p:g}: {100 * v.mean():.1f} ± {100 * v.std():.1f} %" for p, v in found.items())
        return Measured(text, np.concatenate([found[psi] for psi in contexts]))

    return measure


def _deviation(group: Group, kind: type[TaskFlow]) -> np.ndarray:
    times = np.geomspace(0.1, group.times[-1], 40)
    predicted = np.stack([group.flow(kind, i).test_loss(times) for i in range(len(group.runs))])
    return np.abs(group.at(times) / predicted - 1).max(1)


def by_frequency(seen: Seen) -> Measured:
    """Minus the slope of ln(half-time) against ln(frequency) in every run."""
    slopes = []
    for psi, group in seen.groups.items():
        for run, alignment in zip(group.runs, seen.alignments[psi], strict=True):
            half = alignment.modes["measured_half_time"].to_numpy()
            use = (half > 0) & (half < group.times[-1])
            frequency = np.array((run.theory or {})["frequency"])
            slopes.append(-np.polyfit(np.log(frequency[use]), np.log(half[use]), 1)[0] if use.sum() > 2 else np.nan)
    found = np.array(slopes)
    return Measured(f"half-time ~ frequency^-x, over the tasks learned: x = {spread(found, 3)}", found)


def outputs(group: Group, step: int, seed: int = 0) -> np.ndarray:
    """f / Lambda of every task at one checkpoint."""
    tensors = group.runs[seed].checkpoint(step)
    v, h, w = (tensors[name].numpy() for name in ("v", "h", "w"))
    return np.einsum("si,sij,sj->s", v, h, w) / STRENGTH


def unseen_move(seen: Seen) -> Measured:
    """The largest change of the output of a task that was never drawn, over Lambda, in every run."""
    found = []
    for group in seen.groups.values():
        for i, run in enumerate(group.runs):
            unseen = np.array((run.theory or {})["frequency"]) == 0
            found.append(np.abs(outputs(group, run.steps[-1], i) - outputs(group, 0, i))[unseen].max(initial=0.0))
    return Measured(f"largest change of f over Λ of a task never drawn: {max(found):.1e}", np.array(found))


def seen_end(seen: Seen) -> Measured:
    """How far tasks end from Lambda that were half learned in the first fiftieth of training: the largest of a run."""
    found = []
    for psi, group in seen.groups.items():
        for i, alignment in enumerate(seen.alignments[psi]):
            early = alignment.modes["measured_half_time"].to_numpy() < group.times[-1] / 50
            off = np.abs(outputs(group, group.runs[i].steps[-1], i) - 1)
            found.append(off[early].max() if early.any() else np.nan)
    known = np.array(found)
    largest = known[np.isfinite(known)].max(initial=0.0)
    return Measured(f"largest |f - Λ| / Λ at the end of tasks learned early: {largest:.1e}", known)


def conserved_norms(seen: Seen) -> Measured:
    """Change of |v|^2 - |w|^2 over all squared norms."""
    drift = np.array([a.conserved_drift for found in seen.alignments.values() for a in found])
    return Measured(f"largest change / all squared norms at the end: {spread(drift, 5)}", drift)


def conserved_product(seen: Seen) -> Measured:
    """|ln| of how much g h of the most frequent task changes, both on H^0 as Eq 38 has them; other lengths are told."""
    found = {psi: _changes(group, _product) for psi, group in seen.groups.items()}
    return Measured("g h of task 1, at the end / at the start: " + _told(found), np.abs(np.log(found[LONG])))


def conserved_line(seen: Seen) -> Measured:
    """Change of Lambda eta_s - eta_y (Eq 120) of the most frequent task, over |eta| at the end."""
    found = {psi: _line_drift(group) for psi, group in seen.groups.items()}
    text = "change of Λ η_s - η_y of task 1 / |η| at the end: "
    return Measured(text + by_group({f"ψ = {p:g}": v for p, v in found.items()}, lambda v: spread(v, 4)), found[LONG])


def _told(found: dict[float, np.ndarray]) -> str:
    return by_group({f"ψ = {p:g}": v for p, v in found.items()}, lambda v: f"{v.mean():.3g}")


def _sums(group: Group, index: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """eta and rho of the most frequent task, on feature and target."""
    tensors = group.runs[index].checkpoint(step)
    v, w = tensors["v"][0].numpy(), tensors["w"][0].numpy()
    return v + w, v - w


def _product(group: Group, index: int, step: int) -> float:
    eta, rho = (x @ np.array([1.0, STRENGTH]) for x in _sums(group, index, step))
    return float((group.config.context * eta * rho) ** 2)


def _changes(group: Group, value: Callable[[Group, int, int], float]) -> np.ndarray:
    ends = [(value(group, i, run.steps[-1]), value(group, i, 0)) for i, run in enumerate(group.runs)]
    return np.array([end / start for end, start in ends])


def _line_drift(group: Group) -> np.ndarray:
    found = []
    for i, run in enumerate(group.runs):
        start, end = (_sums(group, i, step)[0] for step in (0, run.steps[-1]))
        found.append(abs((end - start) @ np.array([STRENGTH, -1.0])) / np.linalg.norm(end))
    return np.array(found)


def _reached(alignment: Alignment) -> np.ndarray:
    """Half-times, measured over predicted, of tasks that were learned while the run lasted."""
    table = alignment.modes
    end = alignment.trajectories["time"].max()
    reached = (table["measured_half_time"] > 0) & (table["measured_half_time"] < 0.9 * end)
    return table.loc[reached, "half_time_ratio"].to_numpy()
