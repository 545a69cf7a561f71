"""Fig 4 of paper 000: three measures that should show the time scales, against the times that theory knows.

Uses the runs of `loss_plateaus` (5 seeds, about 25 s if they are not there yet). Expect: autocorrelation curvature and
norm growth at the learning times within 10 %; norm curvature a quarter early; the marginalized rank dips a quarter
late, and reliably so only if modes are followed by their vectors.
"""

from pathlib import Path

import numpy as np
import pandas as pd

import probes
from analyses.paper_000_exact_dynamics.linear_runs import RUNS, Group, far_apart
from analyses.tools.draw import EXACT, PRINTED, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.verdicts import HOLDS, IN_PART, Verdict, judge, percent, spread
from checkpoints import Run
from models.linear_icl.model import exact_theory
from probes import Factored

TOLERANCE = 0.15  # a measure marks the learning of a mode if it is no further off than this, at every mode and seed


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    group = far_apart(size, runs)
    curves = [measures(run) for run in group.runs]
    times = np.stack([exact_theory(run.config, run.theory or {}).half_times for run in group.runs])
    return Page(
        "timescale_separation",
        "Time scales seen by the probes (Fig 4)",
        "All three measures of Fig 4 show the stages of training. Read as the paper prints them they are shifted or, for "
        "the marginalized rank by size, mixed up; in the variants below they fall on the times at which the modes are learned.",
        group.facts,
        draw(curves, times, group.printed.half_times),
        "Vertical lines: the times at which the modes are learned, by the exact flow (mean over seeds) and as printed. Thin curves: single "
        "seeds. (A) curvature of the loss autocorrelation in log lag. (B) growth of ||p2|| in log time (solid) and its "
        "curvature (dashed). (C) effective rank of p2 q1 with k modes taken out, in the order in which they converged.",
        judgements(group, curves, times),
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
    table = probes.measure(run, ("ov", "product"), probes=("norm", "marginalized_effective_rank"), removed=most)

    def of_head(probe: str, circuit: str, k: int | None = None) -> np.ndarray:
        return probes.by_head(table, probe, circuit, k).loc[steps, (0, 0)].to_numpy()

    norms = of_head("norm", "ov")  # p2
    by_size = {k: of_head("marginalized_effective_rank", "product", k) for k in range(most + 1)}
    correlation = probes.loss_autocorrelation_curvature(run.metrics["loss"].to_numpy(), spacing=pace)
    growth = {
        "time": times,
        "growth": probes.norm_growth(norms, times),
        "curvature": probes.norm_curvature(norms, times),
    }
    return {
        "correlation": correlation.rename(columns={"lag": "time"}),
        "norm": pd.DataFrame(growth),
        "by mode": pd.DataFrame(by_mode).assign(time=times),
        "by size": pd.DataFrame(by_size).assign(time=times),
    }


def nearest_peaks(curve: pd.DataFrame, column: str, truth: np.ndarray) -> np.ndarray:
    """For each true time, the nearest peak within a factor 1.8, as a ratio; NaN if there is none."""
    usable = curve[(curve["time"] > truth[0] / 4) & (curve["time"] < truth[-1] * 2.5)]
    found = probes.peaks(usable[column], usable["time"], prominence=0.02)["step"].to_numpy()
    ratios = found[None] / truth[:, None]
    ratios = np.where((ratios > 1 / 1.8) & (ratios < 1.8), ratios, np.nan)
    return np.array([row[np.nanargmin(np.abs(np.log(row)))] if np.isfinite(row).any() else np.nan for row in ratios])


def dips(curve: pd.DataFrame, truth: np.ndarray, modes: int) -> np.ndarray:
    """Where the rank with k modes out is lowest in the whole run, as a ratio to the time mode k is learned.

    NaN if that is at an end of the run.
    """
    found = []
    for k in range(modes):
        time, rank = curve["time"].to_numpy(), curve[k].to_numpy()
        lowest = int(rank.argmin())
        inside = 0 < lowest < len(rank) - 1
        found.append(float(time[lowest]) / truth[k] if inside else np.nan)
    return np.array(found)


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


def judgements(group: Group, curves: list[dict], times: np.ndarray) -> list[Verdict]:
    """The claims of section 4 that can be checked where the times are known."""
    pairs = list(zip(curves, times, strict=True))
    correlation = np.stack([nearest_peaks(c["correlation"], "curvature", t) for c, t in pairs])
    growth = np.stack([nearest_peaks(c["norm"], "growth", t) for c, t in pairs])
    bend = np.stack([nearest_peaks(c["norm"], "curvature", t) for c, t in pairs])
    modes = times.shape[1] - 1
    by_mode = np.stack([dips(c["by mode"], t, modes) for c, t in pairs])
    by_size = np.stack([dips(c["by size"], t, modes) for c, t in pairs])
    s = np.array(group.config.eigenvalues)
    measured = group.per_seed("exact", "measured_half_time")
    slopes = np.array([np.polyfit(np.log(s), np.log(row), 1)[0] for row in measured])

    def found(ratios: np.ndarray) -> str:
        seen = np.isfinite(ratios)
        inside = ratios[seen]
        text = f"a peak at {seen.sum()} of {seen.size} learning times"
        return text + (
            f", at {inside.min():.2f} - {inside.max():.2f} of them (mean {inside.mean():.2f})" if seen.any() else ""
        )

    def verdict(ratios: np.ndarray) -> str:
        seen = np.isfinite(ratios)
        if not seen.any() or seen.mean() < 0.5:
            return "does not hold"
        off = np.abs(ratios[seen] - 1).max()
        return HOLDS if seen.all() and off <= TOLERANCE else IN_PART

    return [
        Verdict(
            "time scales separate as 1/s²",
            "section 3",
            f"slope of ln(half-time) against ln s: {spread(slopes, 2)}",
            judge(abs(slopes.mean() + 2), 0.25, 0.5),
            "the logarithm in t* and the 1/N terms add to -2; they are in both theories",
        ),
        Verdict(
            "peaks in the curvature of A(tau) mark the cliffs",
            "section 4, Fig 4A",
            found(correlation),
            verdict(correlation),
            f"within {100 * TOLERANCE:.0f} %, for the biased estimate of the loss above its end, in log lag; smoothing .2 in ln(lag) moves peaks by up to 8 %",
        ),
        Verdict(
            "peaks in the norm curvature align with them",
            "section 4, Fig 4B",
            f"curvature: {found(bend)}. Growth: {found(growth)}",
            verdict(bend),
            f"the curvature leads by more than {100 * TOLERANCE:.0f} %; it is the growth d||p2||/d ln t that peaks when a mode is learned",
        ),
        Verdict(
            "dips of the marginalized effective rank mark the learning of modes (removed in order of convergence)",
            "section 4, Fig 4C",
            f"followed by vector: {percent(by_mode[np.isfinite(by_mode)])} after the mode is learned, "
            f"{np.isfinite(by_mode).sum()} of {by_mode.size} dips seen. "
            f"Removed by size: {np.isfinite(by_size).sum()} of {by_size.size} seen"
            + (f", at {percent(by_size[np.isfinite(by_size)])}" if np.isfinite(by_size).any() else ""),
            verdict(by_mode),
            f"a lagging sign, by more than {100 * TOLERANCE:.0f} %: the rank is lowest once the mode dominates; by size it scatters, because modes overtake each other",
        ),
    ]
