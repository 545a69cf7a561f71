"""Fig 4 of paper 000: three measures that should show the time scales, against the times that theory knows.

Uses the runs of `loss_plateaus` (5 seeds, about 25 s if they are not there yet). Expect: autocorrelation curvature and
norm growth at the learning times within 10 %; norm curvature a quarter early; the marginalized rank dips a quarter
late, and reliably so only if modes are followed by their vectors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import probes
from analyses.paper_000_exact_dynamics.linear_runs import RUNS, Group, far_apart
from analyses.tools.claims import Claim, Measured, judged
from analyses.tools.draw import EXACT, PRINTED, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.rules import Close, Every, Marks
from analyses.tools.verdicts import percent, spread
from checkpoints import Run
from models.linear_icl.model import exact_theory
from probes import Factored

LINEAR_SMOOTHING, LINEAR_EVERY = 20, 4  # steps: smoothing of A(tau) in linear lag, and the lags that are looked at
TOLERANCE = 0.15  # a measure marks the learning of a mode if it is no further off than this, at every mode and seed


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    group = far_apart(size, runs)
    curves = [measures(run) for run in group.runs]
    times = np.stack([exact_theory(run.config, run.theory or {}).half_times for run in group.runs])
    return Page(
        "timescale_separation",
        "Time scales seen by the probes (Fig 4)",
        "Norms and ranks show the stages of training, shifted; the loss autocorrelation as printed misses half of them or "
        "more. In the variants below all three fall on the times at which the modes are learned.",
        group.facts,
        draw(curves, times, group.printed.half_times),
        "Vertical lines: the times at which the modes are learned, by the exact flow (mean over seeds) and as printed. Thin curves: single "
        "seeds. (A) curvature of the loss autocorrelation in log lag. (B) growth of ||p2|| in log time (solid) and its "
        "curvature (dashed). (C) effective rank of p2 q1 with k modes taken out, in the order in which they converged.",
        judged(CLAIMS, Seen(group, curves, times)),
    )


def measures(run: Run) -> dict[str, pd.DataFrame]:
    """Everything Fig 4 draws, for one run, against theory time."""
    pace = (run.theory or {})["time_per_step"]
    steps = [step for step in run.steps if step > 0]
    times = pace * np.array(steps, dtype=float)
    products = [Factored(part["p2"], part["q1"]) for part in map(run.checkpoint, steps)]
    basis = probes.thin_svd(products[-1])
    order = probes.convergence_order(probes.mode_trajectories(products).numpy(), times)
    most = len(order) - 2
    by_mode = [probes.marginalized_effective_rank_by_mode(p, basis, order, removed=most).numpy() for p in products]
    table = probes.measure(run, ("ov", "qk", "product"), probes=("norm", "marginalized_effective_rank"), removed=most)

    def of_head(probe: str, circuit: str, k: int | None = None) -> np.ndarray:
        return probes.by_head(table, probe, circuit, k).loc[steps, (0, 0)].to_numpy()

    norms, other = of_head("norm", "ov"), of_head("norm", "qk")  # p2 and q1
    by_size = {k: of_head("marginalized_effective_rank", "product", k) for k in range(most + 1)}
    loss = run.metrics["loss"].to_numpy()
    correlation, printed = (
        probes.loss_autocorrelation_curvature(loss, spacing=pace, estimate=estimate)
        for estimate in (probes.loss_autocorrelation, probes.printed_loss_autocorrelation)
    )
    linear = probes.printed_loss_autocorrelation(loss)[: len(loss) // 2 : LINEAR_EVERY]  # beyond, few pairs are left
    linear_lags = pace * LINEAR_EVERY * np.arange(len(linear))
    bent = probes.linear_curvature(linear, np.arange(len(linear)), smoothing=LINEAR_SMOOTHING / LINEAR_EVERY)
    growth = {
        "time": times,
        "growth": probes.norm_growth(norms, times),
        "curvature": probes.norm_curvature(norms, times),
    }
    return {
        "correlation": correlation.rename(columns={"lag": "time"}),
        "printed, log lag": printed.rename(columns={"lag": "time"}),
        "printed, linear lag": pd.DataFrame({"time": linear_lags, "curvature": bent}),
        "norm": pd.DataFrame(growth),
        "norm of q1": pd.DataFrame({"time": times, "curvature": probes.norm_curvature(other, times)}),
        "by mode": pd.DataFrame(by_mode).assign(time=times),
        "by size": pd.DataFrame(by_size).assign(time=times),
    }


def usable(curve: pd.DataFrame, truth: np.ndarray) -> pd.DataFrame:
    """The part of a curve around the times that it should show."""
    return curve.loc[(curve["time"] > truth[0] / 4) & (curve["time"] < truth[-1] * 2.5)]


def nearest(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """For each true time, the nearest of what was found within a factor 1.8, as a ratio; NaN if there is none."""
    if not len(found):
        return np.full(len(truth), np.nan)
    ratios = found[None] / truth[:, None]
    return _near(ratios[np.arange(len(truth)), np.abs(np.log(ratios)).argmin(1)])


def _near(ratios: np.ndarray) -> np.ndarray:
    return np.where((ratios > 1 / 1.8) & (ratios < 1.8), ratios, np.nan)


def dips(curve: pd.DataFrame, truth: np.ndarray, modes: int) -> np.ndarray:
    """Where the rank with k modes out is lowest in the whole run, as a ratio to the time mode k is learned.

    NaN if that is at an end of the run, or not within a factor 1.8.
    """
    found = []
    for k in range(modes):
        time, rank = curve["time"].to_numpy(), curve[k].to_numpy()
        lowest = int(rank.argmin())
        inside = 0 < lowest < len(rank) - 1
        found.append(float(time[lowest]) / truth[k] if inside else np.nan)
    return _near(np.array(found))


def draw(curves: list[dict], times: np.ndarray, printed: np.ndarray):
    """Three panels under one time axis."""
    figure, axes = panels(1, 3, height=4.2)
    colours = mode_colours(times.shape[1])
    for one in curves:
        c = one["correlation"]
        c = c[c["time"] > times[0, 0] / 4]
        axes[0, 0].plot(c["time"], 1e3 * c["curvature"], color="#1f6fb4", linewidth=0.9, alpha=0.8)
        axes[0, 1].plot(one["norm"]["time"], one["norm"]["growth"], color="#1f6fb4", linewidth=0.9)
        axes[0, 1].plot(one["norm"]["time"], one["norm"]["curvature"], "--", color="#d1603d", linewidth=0.9)
        for k in range(times.shape[1] - 1):
            axes[0, 2].plot(one["by mode"]["time"], one["by mode"][k], color=colours[k], linewidth=0.9)
    for k in range(times.shape[1] - 1):
        axes[0, 2].plot([], [], color=colours[k], label=f"{k} modes out")
    axes[0, 1].plot([], [], color="#1f6fb4", label="d||p2|| / d ln t")
    axes[0, 1].plot([], [], "--", color="#d1603d", label="d²||p2|| / d(ln t)²")
    titles = (
        "(A) loss autocorrelation, curvature x 1000",
        "(B) norm of p2",
        "(C) marginalized effective rank of p2 q1",
    )
    labels = ("lag (learning rate x step)", "time (learning rate x step)", "time (learning rate x step)")
    for ax, title, label in zip(axes[0], titles, labels, strict=True):
        ax.set(title=title, xscale="log", xlabel=label)
        ax.set_xlim(times.mean(0)[0] / 4, times.mean(0)[-1] * 2.5)
        for at, other in zip(times.mean(0), printed, strict=True):
            ax.axvline(at, **EXACT)
            ax.axvline(other, **PRINTED)
    axes[0, 0].plot([], [], **EXACT, label="mode learned, exact flow")
    axes[0, 0].plot([], [], **PRINTED, label="mode learned, printed t*")
    axes[0, 0].legend(fontsize=8, loc="upper left")
    axes[0, 1].legend(fontsize=8)
    axes[0, 2].legend(fontsize=8)
    return figure


@dataclass(frozen=True)
class Seen:
    """The runs, their curves, and the times at which the exact flow learns the modes: [runs, modes]."""

    group: Group
    curves: list[dict[str, pd.DataFrame]]
    times: np.ndarray


def marks(curve: str, column: str = "curvature") -> Callable[[Seen], Measured]:
    """The peak nearest to each learning time, as a ratio to it; beside it as many peaks strewn at random in ln(time)."""

    def measure(seen: Seen) -> Measured:
        pairs = [(usable(one[curve], times), times) for one, times in zip(seen.curves, seen.times, strict=True)]
        found = [probes.peaks(c[column], c["time"], prominence=0.02)["step"].to_numpy() for c, _ in pairs]
        ratios = np.concatenate([nearest(peaks, t) for peaks, (_, t) in zip(found, pairs, strict=True)])
        rng, strewn = np.random.default_rng(0), []
        for peaks, (c, t) in zip(found, pairs, strict=True):
            low, high = np.log(c["time"].iloc[[0, -1]])
            strewn += [nearest(np.exp(rng.uniform(low, high, len(peaks))), t) for _ in range(100)]
        near = ratios[np.isfinite(ratios)]
        extra = sum(len(peaks) for peaks in found) - len(near)
        text = f"a peak near {len(near)} of {len(ratios)} learning times"
        text += f", at {near.min():.2f} - {near.max():.2f} of them" if len(near) else ""
        return Measured(f"{text}; {extra} peaks elsewhere", ratios, np.concatenate(strewn), _n(seen))

    return measure


def dips_of(curve: str) -> Callable[[Seen], Measured]:
    """Where the rank with k modes out is lowest, as a ratio to the time at which mode k is learned."""

    def measure(seen: Seen) -> Measured:
        modes = seen.times.shape[1] - 1
        ratios = [dips(one[curve], t, modes) for one, t in zip(seen.curves, seen.times, strict=True)]
        rng, strewn = np.random.default_rng(0), []
        for one, t in zip(seen.curves, seen.times, strict=True):
            low, high = np.log(one[curve]["time"].iloc[[0, -1]])
            strewn.append(_near(np.exp(rng.uniform(low, high, (100, modes))) / t[:modes]))
        found = np.concatenate(ratios)
        seen_ones = found[np.isfinite(found)]
        text = f"{len(seen_ones)} of {len(found)} dips seen" + (
            f", {percent(seen_ones)} after the mode is learned" if len(seen_ones) else ""
        )
        return Measured(text, found, np.concatenate(strewn).ravel(), _n(seen, modes))

    return measure


def down_then_up(seen: Seen) -> Measured:
    """Whether the plain effective rank is lowest inside the run, a tenth below its start and its end."""
    ranks = [one["by size"][0].to_numpy() for one in seen.curves]
    depth = np.array([1 - r.min() / min(r[0], r[-1]) for r in ranks])
    return Measured(
        f"lowest point below the lower of start and end by {100 * depth.mean():.0f} % of it",
        (depth > 0.1).astype(float),
    )


def slope_of_times(seen: Seen) -> Measured:
    """d ln(half-time) / d ln s over -2."""
    s = np.log(np.array(seen.group.config.eigenvalues))
    slopes = np.array([np.polyfit(s, np.log(row), 1)[0] for row in seen.group.per_seed("exact", "measured_half_time")])
    return Measured(f"slope of ln(half-time) against ln s: {spread(slopes, 2)}", slopes / -2)


def _n(seen: Seen, modes: int | None = None) -> str:
    return f"{len(seen.curves)} runs x {modes or seen.times.shape[1]} modes"


CLAIMS: list[Claim[Seen]] = [
    Claim(
        "time scales separate as 1/s²",
        "section 3",
        slope_of_times,
        Close(0.125, 0.25),
        "the logarithm in t* and the 1/N terms add to -2; they are in both theories",
    ),
    Claim(
        "peaks in the second derivative of A(τ) = E[L(t) L(t+τ)] mark the cliffs",
        "section 4, Fig 4A, as printed",
        marks("printed, linear lag"),
        Marks(TOLERANCE),
        f"the printed estimate, of the loss itself, bent in linear lag; smoothed over {LINEAR_SMOOTHING} steps",
    ),
    Claim(
        "(the same, bent in log lag)",
        "section 4, Fig 4A",
        marks("printed, log lag"),
        Marks(TOLERANCE),
        "the printed estimate in log lag, where every mode bends alike; without subtraction the final loss drowns the rest",
    ),
    Claim(
        "(ours) peaks in the log-lag curvature of the biased A(τ) of the loss above its end mark the cliffs",
        "beside Fig 4A",
        marks("correlation"),
        Marks(TOLERANCE),
        "redefined so that they do on the closed form; smoothing .2 in ln(lag) moves peaks by up to 8 %",
    ),
    Claim(
        "peaks in the curvature of ||p2|| align with them",
        "section 4, Fig 4B",
        marks("norm"),
        Marks(TOLERANCE),
        "in log time; on the closed form the curvature leads by about a fifth",
    ),
    Claim(
        "peaks in the curvature of ||q1|| align with them",
        "section 4, Fig 4B",
        marks("norm of q1"),
        Marks(TOLERANCE),
        "the other active block",
    ),
    Claim(
        "(ours) peaks of the growth d||p2|| / d ln t mark the learning of modes",
        "beside Fig 4B",
        marks("norm", "growth"),
        Marks(TOLERANCE),
        "the first derivative in place of the second",
    ),
    Claim(
        "effective rank initially falls, then rises",
        "section 4, Fig 4C, k = 0",
        down_then_up,
        Every(),
        "of p2 q1, with nothing taken out",
    ),
    Claim(
        "dips of the marginalized effective rank mark the learning of modes (removed in order of convergence)",
        "section 4, Fig 4C",
        dips_of("by mode"),
        Marks(TOLERANCE),
        "followed by vector; the rank is lowest once the next mode dominates, so a lag is to be expected",
    ),
    Claim(
        "(ours) the same, removed by size",
        "beside Fig 4C",
        dips_of("by size"),
        Marks(TOLERANCE),
        "modes overtake each other in size",
    ),
]
