"""One run of modular addition: when it was learned by heart and when understood, and what the probes saw."""

from functools import cached_property

import numpy as np
import pandas as pd

import probes
from analyses.tools.study import Curve, Study, first_above, metric
from models.modular_addition.progress import progress

GENERALISED = 0.99  # accuracy
HORIZONS = (1.1, 1.3)  # of the step of 99 % test accuracy; the end of the run is the third


class Grokking(Study):
    """A run of modular addition. Its anchor is its step of 99 % test accuracy."""

    @cached_property
    def progress(self) -> pd.DataFrame:
        """Restricted and excluded loss."""
        return progress(self.run)

    @cached_property
    def test_loss(self) -> pd.Series:
        """Loss on the held-out pairs, at the steps where it was computed."""
        return metric(self.run, "test_loss")

    @property
    def learned(self) -> float:
        """First step of 99 % training accuracy."""
        return first_above(metric(self.run, "accuracy"), GENERALISED)

    @property
    def test_drop(self) -> float:
        """When the test loss has come halfway from its highest value to its end."""
        return probes.half_time(from_top(self.test_loss))

    def ends(self) -> dict[str, int]:
        """The steps taken as the end, by name."""
        return {f"{h:g} x": self.end(h) for h in self.horizons} | {"run's end": int(self.steps[-1])}

    def distance(self, end: str) -> Curve:
        """Of OV, mean over heads."""
        return self.steps, self.distance_from(self.ends()[end], "ov")

    def drift(self) -> Curve:
        """Of OV, mean over heads."""
        return self.drift_of("ov")

    def norm_curvature(self) -> Curve:
        """Of OV, all heads together, in log step."""
        return self.steps[1:], probes.norm_curvature(self.norm("ov")[1:], self.steps[1:])


def understood(run) -> float:
    """First step of 99 % test accuracy; NaN if never."""
    return first_above(metric(run, "test_accuracy"), GENERALISED)


def autocorrelation(loss: pd.Series) -> Curve:
    """Lag and curvature of A in log lag, as a share of its range so that training and test loss fit one panel."""
    found = probes.loss_autocorrelation_curvature(loss.to_numpy(), spacing=float(loss.index[1] - loss.index[0]))
    values = found["curvature"].to_numpy()
    return found["lag"].to_numpy(), values / np.ptp(values)


def from_top(values: pd.Series) -> pd.Series:
    """What follows the highest value."""
    return values.loc[values.idxmax() :]
