"""Theory laid over a run: mode by mode, what was predicted and what happened.

    align(run, theory)    predicted and measured half-times, ends and curves: an `Alignment`
    align(run)            no theory known: which growth law each mode of OV and QK follows, the logistic of linear
                          theory among rivals (see `mode_growth`): `GrowthFits`

A theory here is anything with the few members of `Theory`; the solvable models bring theirs. How its quantities are
read off the checkpoints stands in the run itself (`run.theory`, written by who trained it):

    time_per_step     theory time per update
    mode_product      names of the tensors whose product carries the modes
    mode_subscripts   how they are multiplied, in einsum's letters; by default "ij,jk->ik", two matrices.
                      An outcome of one letter is the amplitudes themselves; one of two letters is a matrix M, and
    mode_basis        the orthonormal columns u_k in which it is diagonal:  a_k = u_k^T M u_k
    conserved         tensors whose squared norms differ by constants: first - second, first - third, ...
    conserved_axes    how many leading axes (heads, layers) each have a constant of their own; by default 0
    null              tensors that should stay zero

The last three may be left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64
from torch import Tensor

from checkpoints import Run
from probes.circuits import Builder, circuits_of, default_circuits
from probes.matrices.modes import mode_amplitudes
from probes.matrices.spectra import SVD, thin_svd
from probes.series.growth import mode_growth
from probes.series.times import half_time

_FEWEST_IN_BIN = 8

Times = Float64[np.ndarray, " times"]


@runtime_checkable
class Theory(Protocol):
    """What a solvable model says about its own training."""

    @property
    def name(self) -> str:
        """What figures and messages call the theory."""
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
        """Amplitude of each mode at each time: [times, modes]."""
        ...

    def loss(self, times: np.ndarray) -> np.ndarray:
        """Expected loss at each time."""
        ...

    def conserved(self, times: np.ndarray) -> np.ndarray:
        """Conserved quantities [times, quantities], in the order of the run's; [times, 0] if there are none."""
        ...


@dataclass(frozen=True)
class Alignment:
    """A run beside a theory.

    modes          one row per mode: half times, means over the last fifth, fixed point, R^2 of the whole trajectory
    trajectories   one row per checkpoint and mode: step, time, predicted, measured
    loss           one row per logged step: time, predicted, measured
    loss_r2        of the measured loss, averaged in bins of ln(time) with at least 8 steps, against the predicted one
    conserved      one row per checkpoint and conserved quantity: step, time, predicted, measured
    weights        one row per checkpoint: step, time, squared norm of each conserved tensor, their sum (scale), norm of
                   the null tensors
    """

    theory: str
    modes: pd.DataFrame
    trajectories: pd.DataFrame
    loss: pd.DataFrame
    loss_r2: float
    conserved: pd.DataFrame
    weights: pd.DataFrame

    @property
    def conserved_drift(self) -> float:
        """Largest change of a conserved quantity over the run, as a fraction of all squared norms at the end."""
        if self.conserved.empty:
            return float("nan")
        each = self.conserved.groupby("quantity")["measured"]
        change = (self.conserved["measured"] - each.transform("first")).abs().max()
        return float(change / self.weights["scale"].iloc[-1])

    @property
    def null_growth(self) -> float:
        """Norm of the null tensors at the end, as a fraction of that of the conserved ones; NaN if there are none."""
        scale = float(self.weights["scale"].iloc[-1])
        return float(self.weights["null"].iloc[-1]) / scale**0.5 if scale > 0 else float("nan")


@dataclass(frozen=True)
class GrowthFits:
    """A run without a theory: how its modes grew.

    modes          one row per circuit, layer, head and mode: end, when it was halfway there, half-time and rate of the
                   logistic, R^2 of each growth law
    trajectories   one row per checkpoint and mode: circuit, layer, head, mode, step, measured
    """

    modes: pd.DataFrame
    trajectories: pd.DataFrame


Circuits = str | Sequence[str] | Mapping[str, Builder]


@overload
def align(run: Run, theory: Theory, *, circuits: Circuits | None = ..., modes: int = ...) -> Alignment: ...
@overload
def align(run: Run, theory: None = None, *, circuits: Circuits | None = ..., modes: int = ...) -> GrowthFits: ...
def align(
    run: Run, theory: Theory | None = None, *, circuits: Circuits | None = None, modes: int = 4
) -> Alignment | GrowthFits:
    """Lay a theory over a run; without one, fit growth laws to the leading `modes` modes of each of the circuits.

    circuits are as in `measure`: names that the run knows, or names with functions or descriptions of your own.
    """
    if theory is None:
        trajectories = _trajectories(run, circuits, modes)
        return GrowthFits(mode_growth(trajectories), trajectories)
    if run.theory is None:
        raise ValueError(f"run {run.name!r} does not say how its weights relate to a theory: run.json has no 'theory'")
    if len(run.steps) < 3:
        raise ValueError(f"run {run.name!r} has {len(run.steps)} checkpoints: at least 3 are needed")
    steps, pace = np.array(run.steps), float(run.theory["time_per_step"])
    read = [_read({k: t.double() for k, t in run.checkpoint(step).items()}, run.theory) for step in run.steps]
    measured, constants = (np.stack([getattr(one, field) for one in read]) for field in ("modes", "conserved"))
    predicted, constant = theory.modes(pace * steps), theory.conserved(pace * steps)
    for what, expected, found in (("modes", predicted, measured), ("conserved quantities", constant, constants)):
        if expected.shape != found.shape:
            raise ValueError(f"the theory has {expected.shape[1]} {what} and run {run.name!r} has {found.shape[1]}")
    loss = pd.DataFrame({"time": pace * run.metrics.index.to_numpy(), "measured": run.metrics["loss"].to_numpy()})
    loss["predicted"] = theory.loss(loss["time"].to_numpy())
    return Alignment(
        theory.name,
        _by_mode(predicted, measured, pace * steps, theory),
        _long("mode", predicted, measured, steps, pace),
        loss,
        _binned_r2(loss),
        _long("quantity", constant, constants, steps, pace),
        pd.DataFrame([one.norms for one in read]).assign(step=steps, time=pace * steps),
    )


def _trajectories(run: Run, circuits: Circuits | None, modes: int) -> pd.DataFrame:
    """u_k^T M(t) v_k at every checkpoint, u and v of the last one."""
    if len(run.steps) < 5:
        raise ValueError(
            f"run {run.name!r} has {len(run.steps)} checkpoints: at least 5 are needed to tell growth laws apart"
        )
    if modes < 1:
        raise ValueError(f"modes is {modes}: at least 1 is needed")
    wanted = default_circuits(run) if circuits is None else circuits
    found = circuits_of(run, (wanted,) if isinstance(wanted, str) else wanted)
    last = run.checkpoint(run.steps[-1])
    tables = []
    for name, circuit in found.items():
        for layer in circuit.layers:
            basis = thin_svd(circuit.read(last, layer))
            leading = SVD(basis.left[..., :modes], basis.values[..., :modes], basis.right[..., :modes])
            for step in run.steps:
                amplitudes = np.asarray(mode_amplitudes(circuit.read(run.checkpoint(step), layer), leading))
                index = pd.MultiIndex.from_product([range(n) for n in amplitudes.shape], names=["head", "mode"])
                table = pd.DataFrame({"measured": amplitudes.ravel()}, index=index).reset_index()
                tables.append(
                    table.assign(circuit=name, layer=layer if isinstance(layer, int) else str(layer), step=step)
                )
    keys = ["circuit", "layer", "head", "mode", "step"]
    table = pd.concat(tables, ignore_index=True).loc[:, [*keys, "measured"]]
    return table.sort_values(keys, kind="stable", ignore_index=True)


@dataclass(frozen=True)
class _Reading:
    """What theory speaks of, in one checkpoint."""

    modes: np.ndarray
    conserved: np.ndarray
    norms: dict[str, float]


def _read(tensors: Mapping[str, Tensor], section: Mapping[str, Any]) -> _Reading:
    product = torch.einsum(
        section.get("mode_subscripts", "ij,jk->ik"), *(tensors[name] for name in section["mode_product"])
    )
    if product.ndim == 2:
        basis = torch.tensor(section["mode_basis"], dtype=torch.float64)
        product = (basis * (product @ basis)).sum(0)
    kept = section.get("conserved_axes", 0)
    names = section.get("conserved", ())
    squares = [_squares(tensors[name], kept) for name in names]
    constants = [(squares[0] - other).flatten() for other in squares[1:]]
    norms = {name: float(square.sum()) for name, square in zip(names, squares, strict=True)}
    null = float(sum(tensors[name].square().sum() for name in section.get("null", ()))) ** 0.5
    return _Reading(
        product.numpy(),
        torch.cat(constants).numpy() if constants else np.empty(0),
        norms | {"scale": sum(norms.values()), "null": null},
    )


def _squares(tensor: Tensor, kept: int) -> Tensor:
    """Squared norms, one for each index of the leading axes that are kept."""
    return tensor.square().reshape(*tensor.shape[:kept], -1).sum(-1)


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


def _long(what: str, predicted: np.ndarray, measured: np.ndarray, steps: np.ndarray, pace: float) -> pd.DataFrame:
    count, each = predicted.shape
    return pd.DataFrame(
        {
            "step": np.repeat(steps, each),
            "time": np.repeat(pace * steps, each),
            what: np.tile(np.arange(each), count),
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
