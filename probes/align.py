"""Theory laid over a run: mode by mode, what was predicted and what happened.

    align(run, theory)    predicted and measured half-times, ends and curves: an `Alignment`
    align(run)            no theory known: which shape each mode of OV and QK grows with, the logistic of linear theory
                          among rivals (see `mode_shapes`): `Shapes`

A theory here is anything with the few methods of `Theory`; the solvable models bring theirs. How its quantities are
read off the checkpoints stands in the run itself (`run.theory`, written by who trained it):

    time_per_step   theory time per update
    mode_product    names of the two matrices whose product carries the modes, and
    mode_basis      the orthonormal columns u_k in which it is diagonal:  a_k = u_k^T (P Q) u_k
    conserved       the two matrices whose squared norms differ by a constant
    null            matrices that should stay zero
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, overload, runtime_checkable

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64

from checkpoints import Run
from probes.circuits import circuit_of
from probes.measure import Builder
from probes.mode_shapes import mode_shapes
from probes.modes import mode_amplitudes
from probes.spectra import SVD, thin_svd
from probes.times import half_time

_FEWEST_IN_BIN = 8

Times = Float64[np.ndarray, " times"]


@runtime_checkable
class Theory(Protocol):
    """What a solvable model says about its own training."""

    @property
    def name(self) -> str:
        """What to call it."""
        ...

    @property
    def fixed_point(self) -> np.ndarray:
        """Final amplitude of each mode."""
        ...

    @property
    def half_times(self) -> np.ndarray:
        """Time at which each mode reaches half of it; infinite for one that is never learned."""
        ...

    def modes(self, times: np.ndarray) -> np.ndarray:
        """Amplitudes [times, modes]."""
        ...

    def loss(self, times: np.ndarray) -> np.ndarray:
        """Expected loss at each time."""
        ...


@dataclass(frozen=True)
class Alignment:
    """A run beside a theory.

    modes          one row per mode: half times, means over the last fifth, fixed point, R^2 of the whole trajectory
    trajectories   one row per checkpoint and mode: step, time, predicted, measured
    loss           one row per logged step: time, predicted, measured
    loss_r2        of the measured loss, averaged in bins of ln(time) with at least 8 steps, against the predicted one
    weights        one row per checkpoint: the conserved quantity, its scale, the norm of the null blocks
    """

    theory: str
    modes: pd.DataFrame
    trajectories: pd.DataFrame
    loss: pd.DataFrame
    loss_r2: float
    weights: pd.DataFrame

    @property
    def conserved_drift(self) -> float:
        """Largest change of ||P||^2 - ||Q||^2 over the run, as a fraction of ||P||^2 + ||Q||^2 at the end."""
        change = (self.weights["conserved"] - self.weights["conserved"].iloc[0]).abs().max()
        return float(change / self.weights["scale"].iloc[-1])

    @property
    def null_growth(self) -> float:
        """Norm of the null blocks at the end, as a fraction of the norm of the active ones."""
        return float(self.weights["null"].iloc[-1] / np.sqrt(self.weights["scale"].iloc[-1]))


@dataclass(frozen=True)
class Shapes:
    """A run without a theory: how its modes grew.

    modes          one row per circuit, layer, head and mode: end, when it was halfway there, half-time and rate of the
                   logistic, R^2 of each shape
    trajectories   one row per checkpoint and mode: circuit, layer, head, mode, step, measured
    """

    modes: pd.DataFrame
    trajectories: pd.DataFrame


Circuits = str | Sequence[str] | Mapping[str, Builder]


@overload
def align(run: Run, theory: Theory, *, circuits: Circuits = ..., modes: int = ...) -> Alignment: ...
@overload
def align(run: Run, theory: None = None, *, circuits: Circuits = ..., modes: int = ...) -> Shapes: ...
def align(
    run: Run, theory: Theory | None = None, *, circuits: Circuits = ("ov", "qk"), modes: int = 4
) -> Alignment | Shapes:
    """Lay a theory over a run; without one, fit shapes to the leading `modes` modes of each of the circuits.

    circuits are as in `measure`: names that the run's family knows, or names with functions of your own.
    """
    if theory is None:
        trajectories = _trajectories(run, circuits, modes)
        return Shapes(mode_shapes(trajectories), trajectories)
    if run.theory is None:
        raise ValueError(f"run {run.name!r} does not say how its weights relate to a theory: run.json has no 'theory'")
    if len(run.steps) < 3:
        raise ValueError(f"run {run.name!r} has {len(run.steps)} checkpoints: at least 3 are needed")
    pace = float(run.theory["time_per_step"])
    steps = np.array(run.steps)
    measured, weights = _read(run)
    predicted = theory.modes(pace * steps)
    if predicted.shape != measured.shape:
        raise ValueError(f"the theory has {predicted.shape[1]} modes and run {run.name!r} has {measured.shape[1]}")
    loss = pd.DataFrame({"time": pace * run.metrics.index.to_numpy(), "measured": run.metrics["loss"].to_numpy()})
    loss["predicted"] = theory.loss(loss["time"].to_numpy())
    return Alignment(
        theory.name,
        _by_mode(predicted, measured, pace * steps, theory),
        _long(predicted, measured, steps, pace),
        loss,
        _binned_r2(loss),
        weights.assign(step=steps, time=pace * steps),
    )


def _trajectories(run: Run, circuits: Circuits, modes: int) -> pd.DataFrame:
    """u_k^T M(t) v_k at every checkpoint, u and v of the last one."""
    if len(run.steps) < 5:
        raise ValueError(
            f"run {run.name!r} has {len(run.steps)} checkpoints: at least 5 are needed to tell shapes apart"
        )
    if modes < 1:
        raise ValueError(f"modes is {modes}: at least 1 is needed")
    if not isinstance(circuits, Mapping):
        names = (circuits,) if isinstance(circuits, str) else circuits
        circuits = {name: circuit_of(run.family, name) for name in names}
    last = run.checkpoint(run.steps[-1])
    bases = {name: thin_svd(build(last)) for name, build in circuits.items()}
    leading = {name: SVD(b.left[..., :modes], b.values[..., :modes], b.right[..., :modes]) for name, b in bases.items()}
    tables = []
    for step in run.steps:
        checkpoint = run.checkpoint(step)
        for name, build in circuits.items():
            amplitudes = np.asarray(mode_amplitudes(build(checkpoint), leading[name]))
            index = pd.MultiIndex.from_product([range(n) for n in amplitudes.shape], names=["layer", "head", "mode"])
            table = pd.DataFrame({"measured": amplitudes.ravel()}, index=index).reset_index()
            tables.append(table.assign(circuit=name, step=step))
    table = pd.concat(tables, ignore_index=True)
    return table.sort_values(["circuit", "layer", "head", "mode", "step"], kind="stable", ignore_index=True)


def _read(run: Run) -> tuple[np.ndarray, pd.DataFrame]:
    """Amplitudes [checkpoints, modes], and norms of the blocks."""
    assert run.theory is not None  # align checked
    basis = torch.tensor(run.theory["mode_basis"], dtype=torch.float64)
    first, second = run.theory["mode_product"]
    amplitudes, rows = [], []
    for step in run.steps:
        tensors = {name: tensor.double() for name, tensor in run.checkpoint(step).items()}
        amplitudes.append((basis * (tensors[first] @ tensors[second] @ basis)).sum(0).numpy())
        p, q = (float(tensors[name].square().sum()) for name in run.theory["conserved"])
        null = float(sum(tensors[name].square().sum() for name in run.theory["null"])) ** 0.5
        rows.append({"conserved": p - q, "scale": p + q, "first": p, "second": q, "null": null})
    return np.stack(amplitudes), pd.DataFrame(rows)


def _by_mode(predicted: np.ndarray, measured: np.ndarray, times: Times, theory: Theory) -> pd.DataFrame:
    rows = []
    for k, (p, m) in enumerate(zip(predicted.T, measured.T, strict=True)):
        fixed = float(theory.fixed_point[k])
        learned = fixed > 0 and m.max() > fixed / 2
        reached = half_time(m, times, start=0.0, end=fixed) if learned else np.inf
        rows.append(
            {
                "mode": k,
                "predicted_half_time": float(theory.half_times[k]),
                "measured_half_time": reached,
                "predicted_end": _recent(p, times),
                "measured_end": _recent(m, times),
                "fixed_point": fixed,
                "r2": _r2(p, m),
            }
        )
    table = pd.DataFrame(rows)
    table["half_time_ratio"] = table["measured_half_time"] / table["predicted_half_time"]
    table["end_ratio"] = table["measured_end"] / table["predicted_end"]
    return table


def _recent(values: np.ndarray, times: Times) -> float:
    """Mean over the last fifth of the run: SGD jitters about its average, and the average is what theory speaks of."""
    return float(values[times >= 0.8 * times[-1]].mean())


def _long(predicted: np.ndarray, measured: np.ndarray, steps: np.ndarray, pace: float) -> pd.DataFrame:
    count, modes = predicted.shape
    return pd.DataFrame(
        {
            "step": np.repeat(steps, modes),
            "time": np.repeat(pace * steps, modes),
            "mode": np.tile(np.arange(modes), count),
            "predicted": predicted.ravel(),
            "measured": measured.ravel(),
        }
    )


def _binned_r2(loss: pd.DataFrame) -> float:
    later = loss.loc[loss["time"] > 0, ["time", "predicted", "measured"]]
    grouped = later.groupby(np.floor(np.log(later["time"].to_numpy()) / 0.1))
    # bins of a few values are the noise of single batches, not the curve
    means = grouped.mean().to_numpy()[grouped["time"].count().to_numpy() >= _FEWEST_IN_BIN]
    return _r2(means[:, 1], means[:, 2])


def _r2(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Share of the variance of the measured curve that the predicted one explains; NaN if there is no curve."""
    if len(measured) < 2:
        return float("nan")
    spread = float(((measured - measured.mean()) ** 2).sum())
    return 1 - float(((measured - predicted) ** 2).sum()) / spread if spread > 0 else float("nan")
