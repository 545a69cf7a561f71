"""Where the loss rests and falls: what Figs 1a, 2, 5, 8 and 9 of paper 001 are judged by, for trained runs and for flows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

import probes
from analyses.paper_001_multi_head.runs import Group, flows_from
from analyses.tools.study import drops
from models.multi_head.model import MultiHeadConfig
from models.multi_head.theory import plateau_losses

CLEAR = 2.0  # a plateau is clear if the next drop comes at this multiple of the time of the last, or later
NEAR = 0.15  # the loss is at a level if it is within this share of the smaller gap to the levels beside it
FALL = 0.1  # a fall is a peak of -dL / d ln t whose prominence is this share of the highest

Ratios = list[tuple[int, float]]  # (m, measured / expected)


@dataclass(frozen=True)
class Staircase:
    """Losses [runs, times] of one setting among its levels, and |v| [runs, heads] at the end: of SGD or of the flow."""

    rank: int
    times: np.ndarray
    loss: np.ndarray
    levels: np.ndarray
    values: np.ndarray

    @classmethod
    def of_flow(cls, config: MultiHeadConfig, seeds: Sequence[int], end: float, step: float) -> "Staircase":
        """Along the flow from the starts of these seeds; the rest of the flow, which is large, is let go."""
        flows = flows_from(config, seeds, end, step)
        levels = plateau_losses(config.eigenvalues, config.inverse_context)
        return cls(config.rank, flows.times, flows.loss, levels, np.abs(flows.value[-1]))

    @classmethod
    def of_group(cls, group: Group) -> "Staircase":
        """Of trained runs, by the expected loss of their weights."""
        last = [np.abs(group.weights(seed)[1]["value"][-1]) for seed in group.seeds]
        return cls(group.config.rank, group.times, group.loss, group.levels, np.stack(last))

    @cached_property
    def stays(self) -> np.ndarray:
        """How long each loss is at each level, in ln(time): [runs, levels]."""
        return stays(self.times, self.loss, self.levels)

    def stay_at(self, chosen: np.ndarray) -> np.ndarray:
        """Mean stay of each run at the chosen of the levels between the first and the last."""
        return self.stays[:, 1:-1][:, chosen].mean(1)

    @property
    def new_head(self) -> np.ndarray:
        """Which of the levels between the first and the last have an m that is divisible by R."""
        return np.arange(1, len(self.levels) - 1) % self.rank == 0

    def grown(self, share: float = 0.5) -> np.ndarray:
        """How many heads of each run have grown at the end: |v| above a share of the largest."""
        return (self.values > share * self.values.max(1, keepdims=True)).sum(1)


def clear_plateaus(times: np.ndarray, loss: np.ndarray, half: np.ndarray, levels: np.ndarray) -> Ratios:
    """(m, measured / Eq 5) for every clear plateau of one run, from the expected loss in its middle."""
    found, ends = [], np.concatenate(([0.0], np.sort(half)))
    for m, level in enumerate(levels[:-1]):
        start, end = ends[m], ends[m + 1]
        inside = (times > start + 0.25 * (end - start)) & (times < start + 0.6 * (end - start))
        if np.isfinite(end) and end > CLEAR * start and inside.any():
            found.append((m, float(loss[inside].mean() / level)))
    late = times > min(1.3 * ends[-1], 0.95 * times[-1])
    if np.isfinite(ends[-1]):
        found.append((len(levels) - 1, float(loss[late].mean() / levels[-1])))
    return found


def plateaus(group: Group) -> list[Ratios]:
    """The clear plateaus of each trained run."""
    runs = zip(group.loss, group.half_times, strict=True)
    return [clear_plateaus(group.times, loss, half, group.levels) for loss, half in runs]


def worst(found: list[Ratios]) -> np.ndarray:
    """How far the plateau that is furthest off is off, in each run."""
    return np.array([max((abs(ratio - 1) for _, ratio in one), default=np.nan) for one in found])


def by_plateau(found: list[Ratios]) -> dict[str, np.ndarray]:
    """The ratios of all runs, plateau by plateau."""
    every = [pair for one in found for pair in one]
    return {f"m = {m}": np.array([r for k, r in every if k == m]) for m in sorted({k for k, _ in every})}


def stays(times: np.ndarray, loss: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """How long each loss [runs, times] is at each level, in ln(time): [runs, levels]."""
    gaps = -np.diff(levels)
    gaps = np.where(gaps > 0, gaps, np.inf)
    width = NEAR * np.minimum(np.concatenate(([np.inf], gaps)), np.concatenate((gaps, [np.inf])))
    pace = np.diff(times) / times[1:]
    at = [(np.abs(loss[:, 1:] - level) < w) @ pace for level, w in zip(levels, width, strict=True)]
    return np.stack(at, axis=1)


def falls(times: np.ndarray, loss: np.ndarray, smoothing: float = 0.1) -> int:
    """How often the loss falls faster than before and after, in ln(time)."""
    return len(probes.peaks(-probes.slope(loss, times, smoothing=smoothing), times, prominence=FALL))


def falls_of_flow(times: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """The same of each flow, at times that are even in ln(time)."""
    even = np.geomspace(times[1], times[-1], 400)
    return np.array([falls(even, np.interp(even, times, one)) for one in loss])


def cliffs_of(group: Group, seed: int) -> tuple[int, int]:
    """Cliffs in the minibatch loss, and how many of them lie within 20 % of a half-time."""
    found = probes.find_transitions(group.runs[seed].metrics["loss"].to_numpy(), group.times)
    at = drops(found)["step"].to_numpy()
    near = np.abs(at[:, None] / group.half_times[seed] - 1).min(1) < 0.2 if len(at) else np.zeros(0, bool)
    return len(at), int(near.sum())


def rank_ratios(group: Group) -> list[Ratios]:
    """(m, effective rank of what all heads do together / that of Eq 4) at every clear plateau of each run."""
    ends, found = group.flows[0].fixed_point, []
    for run, half in zip(group.runs, group.half_times, strict=True):
        table = probes.measure(run, circuits="product", probes=["effective_rank"])
        ranks = probes.by_head(table, "effective_rank", "product")[0, 0]
        times, values = group.config.learning_rate * ranks.index.to_numpy(), ranks.to_numpy()
        after, one = np.concatenate((np.sort(half), [np.inf])), []
        for m in range(1, len(after)):
            if np.isfinite(after[m - 1]) and after[m] > CLEAR * after[m - 1]:
                middle = int(np.abs(times - (after[m - 1] + after[m]) / 2).argmin()) if np.isfinite(after[m]) else -1
                one.append((m, float(values[middle] / probes.effective_rank(np.diag(ends[:m])))))
        found.append(one)
    return found
