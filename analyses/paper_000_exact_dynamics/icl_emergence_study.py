"""One run of an attention-only model: when in-context learning emerged in it, and what the probes saw."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

import probes
from analyses.tools.study import REMOVED, Curve, Study, curve, first_above, metric
from checkpoints import Run
from probes.circuits import circuits_of

HORIZONS = (1.25, 1.6, 2.0)  # of the step of emergence, taken as the end
CONTROL = 1  # layers


class Emergence(Study):
    """A run of an attention-only model. Its anchor is the step at which in-context learning emerged."""

    def norm_curvature(self) -> Curve:
        """Of OV and QK together."""
        norm = np.hypot(self.norm("ov"), self.norm("qk"))
        return self.steps[1:], probes.norm_curvature(norm[1:], self.steps[1:])

    def distance(self, horizon: float) -> Curve:
        """Mean over OV and QK of all heads, as in Fig 5, from the checkpoint at this multiple of emergence."""
        return self.steps, np.mean([self.distance_from(self.end(horizon), circuit) for circuit in ("ov", "qk")], axis=0)

    def column_distance(self, horizon: float) -> Curve:
        """Of OV, mean over heads."""
        return self.steps, self.distance_from(self.end(horizon), "ov", "column_subspace_distance")

    def drift(self) -> Curve:
        """Mean over OV and QK of all heads."""
        steps, values = self.drift_of("ov")
        return steps, np.mean([values, self.drift_of("qk")[1]], axis=0)

    def rank_by_convergence(self, circuit: str) -> Curve:
        """The effective rank without the REMOVED modes that converged earliest, mean over heads.

        Modes are the singular pairs of the last checkpoint, followed by their vectors; each head has its own order.
        """
        if circuit not in self._by_convergence:
            source = circuits_of(self.run, (circuit,))[circuit]
            parts = [self.run.checkpoint(step) for step in self.run.steps]
            rows = [
                rank
                for layer in source.layers
                for rank in _of_heads([source.read(p, layer) for p in parts], self.steps)
            ]
            self._by_convergence[circuit] = np.mean(rows, axis=0)
        return self.steps, self._by_convergence[circuit]

    @cached_property
    def _by_convergence(self) -> dict[str, np.ndarray]:
        return {}

    @cached_property
    def autocorrelation(self) -> Curve:
        """Lag and curvature of A in log lag."""
        found = probes.loss_autocorrelation_curvature(metric(self.run, "loss").to_numpy())
        return found["lag"].to_numpy(), found["curvature"].to_numpy()

    def heads(self, score: str) -> dict[tuple[int, int], pd.Series]:
        """One of the scores logged in training, by layer and head."""
        names = [str(name) for name in self.run.metrics.columns if str(name).startswith(f"{score}.")]
        return {(int(n.split(".")[1]), int(n.split(".")[2])): metric(self.run, n) for n in names}

    def best(self, score: str) -> tuple[int, int]:
        """The head that ends with the highest score."""
        found = self.heads(score)
        return max(found, key=lambda head: found[head].iloc[-1])

    def best_score(self, score: str) -> Curve:
        """The score, during training, of the head that ends with the highest."""
        return curve(self.heads(score)[self.best(score)])


def _of_heads(series: Sequence[Any], steps: np.ndarray) -> list[np.ndarray]:
    """Of one layer's heads: the curve of each, from its matrices at every checkpoint."""
    found = []
    for head in range(series[0].left.shape[0]):
        matrices = [probes.Factored(one.left[head], one.right[head]) for one in series]
        basis = probes.thin_svd(matrices[-1])
        order = probes.convergence_order(np.asarray(probes.mode_trajectories(matrices)), steps)[:REMOVED]
        left_over = [probes.remove_modes(matrix, basis, order) for matrix in matrices]
        found.append(np.array([float(probes.effective_rank(matrix)) for matrix in left_over]))
    return found


Number = Callable[[Emergence], float]


def accuracy(run: Run) -> pd.Series:
    """On repeated tokens, averaged over 25 steps."""
    return smooth(run, "accuracy_repeated")


def smooth(run: Run, name: str) -> pd.Series:
    """A metric of every step, averaged over 25 of them."""
    return pd.Series(metric(run, name).rolling(25, min_periods=1, center=True).mean())


def final_accuracy(run: Run) -> float:
    """Over the last tenth of the run."""
    values = run.metrics["accuracy_repeated"]
    return float(values.iloc[-len(values) // 10 :].mean())


def emergence(run: Run, share: float = 0.5) -> float:
    """When accuracy on repeated tokens reaches half (or another share) of its end; NaN if it never exceeds one half."""
    end = final_accuracy(run)
    return first_above(accuracy(run), share * end) if end > 0.5 else np.nan


def layers(depth: int) -> str:
    """The depth in words, for labels."""
    return f"{depth} layer" + ("s" if depth > 1 else "")
