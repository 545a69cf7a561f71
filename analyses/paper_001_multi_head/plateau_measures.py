"""What Fig 1 of paper 001 is judged by: where the loss rests, what each head learned, how far Eqs 7 and 31 reach."""

from dataclasses import dataclass

import numpy as np

import probes
from analyses.paper_001_multi_head.runs import Group
from analyses.tools.study import drops
from models.multi_head.reduced import ScalarTheory
from models.multi_head.theory import PopulationFlow, fixed_point

CLEAR = 2.0  # a plateau is clear if the next drop comes at this multiple of the time of the last, or later


@dataclass(frozen=True)
class Heads:
    """What the heads of one seed did: which one learned each mode, and how."""

    times: np.ndarray
    values: np.ndarray  # |v| [times, heads]
    keys: np.ndarray  # [times, heads, d]
    owner: np.ndarray  # of each mode


def heads_of(group: Group, seed: int) -> Heads:
    """Mode d belongs to the head that writes most of it at the end."""
    times, weights = group.weights(seed)
    written = np.einsum("h,hrd,hrd->hd", *(weights[name][-1] for name in ("value", "key", "query")))
    return Heads(times, np.abs(weights["value"]), weights["key"][:, :, 0], np.abs(written).argmax(0))


def plateaus(group: Group) -> list[tuple[int, float]]:
    """(m, measured / Eq 5) for every clear plateau of every seed, from the expected loss in its middle."""
    found = []
    for loss, half in zip(group.loss, group.half_times, strict=True):
        drops = np.concatenate(([0.0], np.sort(half)))
        for m, level in enumerate(group.levels[:-1]):
            start, end = drops[m], drops[m + 1]
            inside = (group.times > start + 0.25 * (end - start)) & (group.times < start + 0.6 * (end - start))
            if np.isfinite(end) and end > CLEAR * start and inside.any():
                found.append((m, float(loss[inside].mean() / level)))
        late = group.times > min(1.3 * drops[-1], 0.95 * group.times[-1])
        if np.isfinite(drops[-1]):
            found.append((len(group.levels) - 1, float(loss[late].mean() / group.levels[-1])))
    return found


def rank_ratios(group: Group) -> list[tuple[int, float]]:
    """(m, effective rank of what all heads do together / that of Eq 4) at every clear plateau."""
    ends, found = group.flows[0].fixed_point, []
    for seed, run in enumerate(group.runs):
        table = probes.measure(run, circuits="product", probes=["effective_rank"])
        ranks = probes.by_head(table, "effective_rank", "product")[0, 0]
        times, values = group.config.learning_rate * ranks.index.to_numpy(), ranks.to_numpy()
        drops = np.concatenate((np.sort(group.half_times[seed]), [np.inf]))
        for m in range(1, len(drops)):
            start, end = drops[m - 1], min(drops[m], times[-1])
            if np.isfinite(start) and (drops[m] > CLEAR * start):
                middle = int(np.abs(times - (start + end) / 2).argmin()) if np.isfinite(drops[m]) else -1
                found.append((m, float(values[middle] / probes.effective_rank(np.diag(ends[:m])))))
    return found


def reduced_equation(group: Group, heads: Heads, fraction: float) -> ScalarTheory:
    """Eq 7 for each mode from where its head has `fraction` of its final value, by what the head did."""
    ends, since, starts = final_values(group), [], []
    for d, head in enumerate(heads.owner):
        begin = int(np.argmax(heads.values[:, head] > fraction * ends[d]))
        since.append(heads.times[begin])
        starts.append(np.clip(heads.values[begin, head], 1e-9, 0.999 * ends[d]))
    return ScalarTheory(group.config.eigenvalues, group.config.inverse_context, starts, since, group.config.heads)


def final_values(group: Group) -> np.ndarray:
    """(lambda / a)^(1/3) of each mode (Eq 6a)."""
    return np.cbrt(fixed_point(group.config.eigenvalues, group.config.inverse_context))


def cliffs_of(group: Group, seed: int) -> tuple[int, int]:
    """Cliffs in the minibatch loss, and how many of them lie within 20 % of a half-time."""
    found = probes.find_transitions(group.runs[seed].metrics["loss"].to_numpy(), group.times)
    at = drops(found)["step"].to_numpy()
    near = np.abs(at[:, None] / group.half_times[seed] - 1).min(1) < 0.2 if len(at) else np.zeros(0, bool)
    return len(at), int(near.sum())


def start_of(group: Group, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value, key and query of the heads of one seed before training, in the eigenbasis."""
    weights = group.weights(seed)[1]
    return weights["value"][0], weights["key"][0], weights["query"][0]


def values_after(heads: Heads, half: np.ndarray) -> np.ndarray:
    """|v| of the head of each mode at one and a half times its half-time."""
    at = np.minimum(1.5 * half, heads.times[-1])
    return np.array([np.interp(t, heads.times, heads.values[:, head]) for t, head in zip(at, heads.owner, strict=True)])


def purity_of(keys: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Share of |k|² of each mode's head that lies along its eigenvector."""
    own = keys[owner]
    return np.diag(own) ** 2 / (own**2).sum(1)


def purity_of_flows(group: Group, shrink: float) -> np.ndarray:
    """The same at the end of the flow from the starts of the runs, made smaller; time then goes as 1 / shrink."""
    found = []
    for seed in group.seeds:
        start = (shrink * part for part in start_of(group, seed))
        flow = PopulationFlow(group.config.eigenvalues, group.config.inverse_context, *start)
        value, key, query = (part[0] for part in flow.weights([3 * group.times[-1] / shrink]))
        owner = np.abs(np.einsum("h,hrd,hrd->hd", value, key, query)).argmax(0)
        found.append(purity_of(key[:, 0], owner))
    return np.stack(found)


def shape_r2(group: Group, shrink: float) -> np.ndarray:
    """R² of Eq 7 against the flow from starts made smaller, for each mode from a third of its final value on."""
    s, inverse_context, ends, found = group.config.eigenvalues, group.config.inverse_context, final_values(group), []
    for seed in group.seeds:
        flow = PopulationFlow(s, inverse_context, *(shrink * part for part in start_of(group, seed)))
        for d, half in enumerate(flow.half_times):
            around = 6 / (s[d] ** 2 * ends[d])  # a few times what Eq 7 takes for the drop
            times = np.linspace(max(0.0, half - around), half + around, 400)
            value, key, query = flow.weights(times)
            head = int(np.abs(value[-1] * (key[-1] * query[-1])[:, 0, d]).argmax())
            values = np.abs(value[:, head])
            begin = int(np.argmax(values > ends[d] / 3))
            start = np.where(np.arange(len(s)) == d, values[begin], 1e-3)
            theory = ScalarTheory(s, inverse_context, np.clip(start, 1e-3, 0.999 * ends), times[begin])
            measured, predicted = values[begin:], theory.values(times[begin:])[:, d]
            variation = ((measured - measured.mean()) ** 2).sum()
            found.append(1 - ((measured - predicted) ** 2).sum() / variation if variation > 0 else -np.inf)
    return np.array(found)


def plateau_ratio(group: Group, seed: int) -> np.ndarray:
    """Eq 7 started at the drop before: predicted time of the drop over the measured one, for every mode but the first."""
    heads, half = heads_of(group, seed), group.half_times[seed]
    ratios = []
    for d in range(1, len(half)):
        if not (np.isfinite(half[d]) and half[d] > CLEAR * half[d - 1]):
            continue
        value = np.interp(half[d - 1], heads.times, heads.values[:, heads.owner[d]])
        starts = np.clip(np.full(len(half), value), 1e-9, 0.99 * final_values(group))
        theory = ScalarTheory(group.config.eigenvalues, group.config.inverse_context, starts, half[d - 1])
        ratios.append(theory.half_times[d] / half[d])
    return np.array(ratios)
