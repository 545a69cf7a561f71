"""A hidden Markov model over the local features of a series, as a detector of changes (after Hu et al., 2023).

Hu et al., "Latent state models of training dynamics", fit a Gaussian hidden Markov model to metrics of a run and read
its changes of state as stages of training. Here the metrics are what one series has: its level, its slope and its
roughness over `BINS` bins of ln(step), each scaled to unit variance. Models of 1 to `STATES` states are fitted by EM
(diagonal covariances, states that can only be left forwards); the number of states is the one with the best
log-likelihood minus penalty x number of parameters x ln(bins) / 2. The threshold is that penalty, 1 being BIC.

All series of a cell are fitted at once: they are resampled to the same number of bins.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from analyses.calibration.cells import Case
from analyses.calibration.peers import Finding, Levels, binned

BINS = 100
STATES = 5
ROUNDS = 15
PENALTIES = np.geomspace(0.25, 200, 25)

_FEATURES = 3


def hidden_markov(cases: Sequence[Case]) -> list[Levels]:
    """Levels over the penalty, for every series of a cell."""
    if not cases:
        return []
    steps, values = zip(*(_resampled(case) for case in cases), strict=True)
    features = np.stack([_features(v) for v in values])
    fits = [_fit(features, count) for count in range(1, STATES + 1)]
    found = []
    for i, at in enumerate(steps):
        likelihoods = np.array([likelihood[i] for likelihood, _ in fits])
        paths = [path[i] for _, path in fits]
        found.append(_levels(likelihoods, paths, at, values[i]))
    return found


def _levels(likelihoods: np.ndarray, paths: list[np.ndarray], steps: np.ndarray, values: np.ndarray) -> Levels:
    parameters = np.array([2 * _FEATURES * count + (count - 1) for count in range(1, STATES + 1)])
    findings = []
    for penalty in PENALTIES:
        best = int(np.argmax(likelihoods - penalty * parameters * np.log(BINS) / 2))
        path = paths[best]
        findings.append(_stages(path, steps, values))
    return Levels(PENALTIES, tuple(findings))


def _stages(path: np.ndarray, steps: np.ndarray, values: np.ndarray) -> tuple[Finding, ...]:
    """A state steeper than both of its neighbours is a transition in its middle; other changes of state are themselves.

    Kinder to the model than its changes alone, which lie at the two ends of a transition.
    """
    ends = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    pieces = list(itertools.pairwise(ends))
    slopes = [float(np.polyfit(np.arange(a, b), values[a:b], 1)[0]) if b - a > 1 else 0.0 for a, b in pieces]
    means = [values[a:b].mean() for a, b in pieces]
    steep = [
        0 < k < len(pieces) - 1 and abs(slopes[k]) > 1.5 * max(abs(slopes[k - 1]), abs(slopes[k + 1]))
        for k in range(len(pieces))
    ]
    found = []
    for k, (a, b) in enumerate(pieces):
        if steep[k]:
            found.append((float(np.sqrt(steps[a] * steps[b - 1])), "fall" if slopes[k] < 0 else "rise"))
        elif k and not steep[k - 1]:
            found.append((float(np.sqrt(steps[a - 1] * steps[a])), "fall" if means[k] < means[k - 1] else "rise"))
    return tuple(found)


def _resampled(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The binned series at BINS steps, evenly in the number of its bins: every value counts the same."""
    data = binned(case)
    place = np.linspace(0, len(data.values) - 1, BINS)
    number = np.arange(len(data.values))
    return np.exp(np.interp(place, number, data.x)), np.interp(place, number, data.values)


def _features(values: np.ndarray) -> np.ndarray:
    """Level, slope and roughness [bins, features]."""
    smooth = np.convolve(np.pad(values, 1, mode="edge"), np.ones(3) / 3, mode="valid")
    columns = [values, np.gradient(smooth), np.log(np.abs(values - smooth) + 1e-3 * np.std(values) + 1e-300)]
    stacked = np.stack(columns, axis=1)
    return (stacked - stacked.mean(0)) / (stacked.std(0) + 1e-12)


def _fit(features: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihoods [series] and most likely states [series, bins] of a left-to-right model, by EM."""
    series, bins, _ = features.shape
    # equal stretches to begin with: a left-to-right chain has no other symmetric start
    weight = np.zeros((series, bins, count))
    weight[:, np.arange(bins), np.arange(bins) * count // bins] = 1
    stay = np.full((series, count), 1 - count / bins)
    likelihood = np.full(series, -np.inf)
    for _ in range(ROUNDS):
        weight, stay, likelihood = _expectation(_emission(features, weight), stay)
    return likelihood, _viterbi(_emission(features, weight), stay)


def _emission(features: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """ln p(features | state) [series, bins, states] with means and variances from the weights."""
    total = weight.sum(1)[..., None] + 1e-9
    mean = np.einsum("sbk,sbf->skf", weight, features) / total
    square = np.einsum("sbk,sbf->skf", weight, features**2) / total
    variance = np.maximum(square - mean**2, 1e-2)
    off = (features[:, :, None] - mean[:, None]) ** 2 / variance[:, None]
    return -0.5 * (off + np.log(2 * np.pi * variance)[:, None]).sum(-1)


def _expectation(emission: np.ndarray, stay: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Forwards and backwards: weights of the states, new chances to stay, log-likelihood. Begins in the first state."""
    series, bins, count = emission.shape
    log_stay, log_move = _log_chances(stay)
    forward = np.full((series, bins, count), -np.inf)
    forward[:, 0, 0] = emission[:, 0, 0]
    for t in range(1, bins):
        come = np.full((series, count), -np.inf)
        come[:, 1:] = forward[:, t - 1, :-1] + log_move[:, :-1]
        forward[:, t] = emission[:, t] + np.logaddexp(forward[:, t - 1] + log_stay, come)
    backward = np.zeros((series, bins, count))
    stays = np.zeros((series, count))
    for t in range(bins - 2, -1, -1):
        ahead = emission[:, t + 1] + backward[:, t + 1]
        go = np.full((series, count), -np.inf)
        go[:, :-1] = ahead[:, 1:] + log_move[:, :-1]
        backward[:, t] = np.logaddexp(ahead + log_stay, go)
    likelihood = np.logaddexp.reduce(forward[:, -1], axis=-1)
    weight = np.exp(forward + backward - likelihood[:, None, None])
    for t in range(bins - 1):
        ahead = emission[:, t + 1] + backward[:, t + 1]
        stays += np.exp(forward[:, t] + log_stay + ahead - likelihood[:, None])
    chance = stays / (weight[:, :-1].sum(1) + 1e-9)
    return weight, np.clip(chance, 0.05, 1 - 1e-3), likelihood


def _viterbi(emission: np.ndarray, stay: np.ndarray) -> np.ndarray:
    series, bins, count = emission.shape
    log_stay, log_move = _log_chances(stay)
    best = np.full((series, count), -np.inf)
    best[:, 0] = emission[:, 0, 0]
    moved = np.zeros((series, bins, count), dtype=bool)
    for t in range(1, bins):
        come = np.full((series, count), -np.inf)
        come[:, 1:] = best[:, :-1] + log_move[:, :-1]
        keep = best + log_stay
        moved[:, t] = come > keep
        best = emission[:, t] + np.maximum(keep, come)
    path = np.zeros((series, bins), dtype=int)
    path[:, -1] = best.argmax(-1)
    rows = np.arange(series)
    for t in range(bins - 1, 0, -1):
        path[:, t - 1] = path[:, t] - moved[rows, t, path[:, t]]
    return path


def _log_chances(stay: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    last = np.ones(stay.shape[1])
    last[-1] = 0  # the last state is not left
    return np.log(np.where(last == 1, stay, 1.0)), np.log(np.where(last == 1, 1 - stay, 1e-300))
