"""One run of an attention-only model: when in-context learning emerged in it, and what the probes saw."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import pandas as pd

import probes
from analyses.tools.study import Curve, Study, curve, first_above, metric
from checkpoints import Run

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
