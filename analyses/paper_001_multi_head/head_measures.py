"""What each head did: which eigenvector it took up, how well it is aligned, how far Eqs 7, 38 and 43 reach."""

from dataclasses import dataclass

import numpy as np

from analyses.paper_001_multi_head.plateau_measures import CLEAR
from analyses.paper_001_multi_head.runs import Group
from models.multi_head.many_flows import ManyFlows
from models.multi_head.model import MultiHeadConfig
from models.multi_head.reduced import ScalarTheory, printed_escape_time
from models.multi_head.theory import PopulationFlow, fixed_point

Weights = tuple[np.ndarray, np.ndarray, np.ndarray]  # value [heads], key and query [heads, rank, d]


@dataclass(frozen=True)
class Heads:
    """The heads of one run or flow: which one learned each mode, and how."""

    times: np.ndarray
    values: np.ndarray  # |v| [times, heads]
    keys: np.ndarray  # [times, heads, d]
    queries: np.ndarray
    written: np.ndarray  # by each head along each mode at the end: [heads, d]

    @classmethod
    def along(cls, times: np.ndarray, value: np.ndarray, key: np.ndarray, query: np.ndarray) -> "Heads":
        """From weights [times, heads, ...] of rank one."""
        written = np.einsum("h,hrd,hrd->hd", value[-1], key[-1], query[-1])
        return cls(times, np.abs(value), key[:, :, 0], query[:, :, 0], written)

    @property
    def owner(self) -> np.ndarray:
        """The head that writes most of each mode."""
        return np.abs(self.written).argmax(0)

    @property
    def is_shared(self) -> bool:
        """Whether some eigenvector is written by two heads, each with more than a fifth of it."""
        return bool(((self.written / self.written.sum(0) > 0.2).sum(0) > 1).any())

    @property
    def purity(self) -> np.ndarray:
        """Share of |k|² of each mode's head at the end that lies along its eigenvector."""
        own = self.keys[-1][self.owner]
        return np.diag(own) ** 2 / (own**2).sum(1)

    @property
    def imbalance(self) -> np.ndarray:
        """How far |k|² and |q|² of each mode's head at the end are from its v², the further one."""
        v2 = self.values[-1][self.owner] ** 2
        return np.max(
            [np.abs((part[-1][self.owner] ** 2).sum(1) / v2 - 1) for part in (self.keys, self.queries)], axis=0
        )


def heads_of(group: Group, seed: int) -> Heads:
    """The heads of a trained run."""
    times, weights = group.weights(seed)
    return Heads.along(times, weights["value"], weights["key"], weights["query"])


def heads_of_flows(flows: ManyFlows) -> list[Heads]:
    """The heads of each flow."""
    starts = range(flows.value.shape[1])
    return [Heads.along(flows.kept_times, flows.value[:, i], flows.key[:, i], flows.query[:, i]) for i in starts]


def final_values(config: MultiHeadConfig) -> np.ndarray:
    """(lambda / a)^(1/3) of each mode (Eq 6a)."""
    return np.cbrt(fixed_point(config.eigenvalues, config.inverse_context))


def flows_of_small_starts(config: MultiHeadConfig, starts: Weights, shrink: float) -> list[PopulationFlow]:
    """Flows from these starts [starts, ...] made smaller, one by one: their plateaus last 1 / shrink times as long."""
    every = zip(*(shrink * part for part in starts), strict=True)
    return [PopulationFlow(config.eigenvalues, config.inverse_context, *one) for one in every]


def end_of(flow: PopulationFlow, time: float) -> Heads:
    """The heads of a flow at one late time."""
    return Heads.along(np.array([time]), *flow.weights([time]))


def reduced_equation(config: MultiHeadConfig, heads: Heads, fraction: float) -> ScalarTheory:
    """Eq 7 for each mode from where its head has `fraction` of its final value."""
    ends, since, starts = final_values(config), [], []
    for d, head in enumerate(heads.owner):
        begin = int(np.argmax(heads.values[:, head] > fraction * ends[d]))
        since.append(heads.times[begin])
        starts.append(np.clip(heads.values[begin, head], 1e-9, 0.999 * ends[d]))
    return ScalarTheory(config.eigenvalues, config.inverse_context, starts, since, config.heads)


def shape_r2(config: MultiHeadConfig, flow: PopulationFlow) -> np.ndarray:
    """R² of Eq 7 against a flow, for each mode from a third of its final value on."""
    s, ends, found = np.array(config.eigenvalues), final_values(config), []
    for d, half in enumerate(flow.half_times):
        if not np.isfinite(half):
            continue
        around = 6 / (s[d] ** 2 * ends[d])  # a few times what Eq 7 takes for the drop
        times = np.linspace(max(0.0, half - around), half + around, 400)
        value, key, query = flow.weights(times)
        values = np.abs(value[:, int(np.abs(value[-1] * (key[-1] * query[-1])[:, 0, d]).argmax())])
        begin = int(np.argmax(values > ends[d] / 3))
        start = np.where(np.arange(len(s)) == d, values[begin], 1e-3)
        theory = ScalarTheory(s, config.inverse_context, np.clip(start, 1e-3, 0.999 * ends), times[begin])
        measured, predicted = values[begin:], theory.values(times[begin:])[:, d]
        variation = ((measured - measured.mean()) ** 2).sum()
        found.append(1 - ((measured - predicted) ** 2).sum() / variation if variation > 0 else -np.inf)
    return np.array(found)


def values_after(heads: Heads, half: np.ndarray) -> np.ndarray:
    """|v| of the head of each mode at one and a half times its half-time."""
    at = np.minimum(1.5 * half, heads.times[-1])
    return np.array([np.interp(t, heads.times, heads.values[:, head]) for t, head in zip(at, heads.owner, strict=True)])


def plateaus_by_eq_43(config: MultiHeadConfig, heads: Heads, half: np.ndarray) -> np.ndarray:
    """Measured / printed length of every clear plateau but the first: from the drop before, by v of the next head then."""
    ratios = []
    for d in range(1, len(half)):
        if np.isfinite(half[d]) and half[d] > CLEAR * half[d - 1]:
            value = np.interp(half[d - 1], heads.times, heads.values[:, heads.owner[d]])
            ratios.append((half[d] - half[d - 1]) / printed_escape_time(config.eigenvalues[d], value))
    return np.array(ratios)
