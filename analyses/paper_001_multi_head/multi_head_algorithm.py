"""Section 3.3 of paper 001: what the heads compute on each plateau, beside principal component regression.

Uses the runs of `multi_head_plateaus` and trains two longer contexts (six seeds each, about 10 s on one core), and as
many fresh ones. Expect:
on the plateau with m eigenvectors the nearest of all regressions on the leading components is the one with m; the
difference to it falls as 1 / sqrt(N) and is no less than a third of the answer at N = 31.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from analyses.paper_001_multi_head.plateau_measures import CLEAR
from analyses.paper_001_multi_head.runs import NAMES, RUNS, Group, of_context, which_seeds
from analyses.tools.claims import Claim, Measured, by_group, judged, judged_again
from analyses.tools.draw import EXACT, MEASURED, panels
from analyses.tools.page import Page
from analyses.tools.rules import Close, Every, Small, Together
from analyses.tools.source import Source
from analyses.tools.verdicts import spread
from models.multi_head.task import Tokens, draw_tokens, prompts_from_tokens
from models.multi_head.theory import fixed_point

CONTEXTS = (31, 127, 511)
FRESH = {"toy": 500, "quick": 4000, "paper": 20000}


@dataclass(frozen=True)
class Seen:
    """Runs by length, what they do on fresh prompts, and the distance of Eq 8 from regression."""

    groups: dict[int, Group]
    found: dict[int, list[dict]]
    limit: dict[int, np.ndarray]


def gather(source: Source) -> Seen:
    """Train or load, and compare."""
    groups = {n: of_context(n, source) for n in CONTEXTS}
    tokens = {n: fresh_prompts(group, FRESH[source.size]) for n, group in groups.items()}
    found = {n: compare(groups[n], tokens[n]) for n in CONTEXTS}
    return Seen(groups, found, {n: difference_at_fixed_points(groups[n], tokens[n]) for n in CONTEXTS})


def run(size: str = "quick", runs: Path = RUNS, *, fresh: bool = False) -> Page:
    """Train or load, measure, draw, judge."""
    source = Source(size, runs, has_fresh=fresh)
    seen = gather(source)
    return Page(
        "multi_head_algorithm",
        "Principal component regression in context (section 3.3)",
        "On the plateau with m eigenvectors the heads do Eq 8, and among regressions on the leading components the one with m "
        "is nearest. That they 'approximately implement' it is a statement about long prompts: they use the mean covariance "
        "in place of the prompt's own, and at N = 31 the difference is a third of the answer.",
        f"{seen.groups[31].facts}; also N = {', '.join(map(str, CONTEXTS[1:]))}; {FRESH[size]} fresh prompts. {which_seeds(source)}",
        draw(seen.groups, seen.found, seen.limit),
        "Left: distance between the answers of the heads on the plateau with m eigenvectors (rows) and of regression on m' "
        "components (columns), as a share of the size of the true answer, N = 31, mean over seeds. Middle: mean squared "
        "error on fresh prompts. Right: distance to the regression with the same m against the length of the prompts; "
        "points are seeds, lines Eq 8 at the fixed points.",
        judged_again(CLAIMS, seen, gather(source.fresh), NAMES) if source.fresh else judged(CLAIMS, seen),
    )


def fresh_prompts(group: Group, count: int) -> Tokens:
    """Prompts no run has seen, in the eigenbasis."""
    s = torch.tensor(group.config.eigenvalues, dtype=torch.float64)
    return draw_tokens(s, group.config.context, count, torch.Generator().manual_seed(2 * 10**6))


def regression(tokens: Tokens, components: int) -> np.ndarray:
    """Least squares in each prompt on the leading eigenvectors: answers to the queries."""
    x, query = tokens.x[:, :-1, :components], tokens.x[:, -1, :components]
    if components == 0:
        return np.zeros(len(query))
    # lstsq wants full rank; a prompt has more examples than components here
    coefficients = torch.linalg.lstsq(x, tokens.y[:, :-1, None]).solution.squeeze(-1)
    return (coefficients * query).sum(-1).numpy()


def answers(tokens: Tokens, matrix: np.ndarray) -> np.ndarray:
    """What heads that do M together answer to each query: beta^T M x_q."""
    prompts = prompts_from_tokens(tokens)
    return np.einsum("ki,ij,kj->k", prompts.correlation.numpy(), matrix, prompts.query.numpy())


def distance(first: np.ndarray, second: np.ndarray, tokens: Tokens) -> float:
    """Root mean square of the difference, as a share of that of the true answers."""
    return float(np.sqrt(((first - second) ** 2).mean() / tokens.y[:, -1].numpy().var()))


def plateau_matrices(group: Group) -> list[tuple[int, int, np.ndarray]]:
    """(seed, m, M) at the middle of every clear plateau, and at the end of training."""
    found = []
    for seed in group.seeds:
        times, weights = group.weights(seed)
        matrices = np.einsum("th,thri,thrj->tij", *(weights[name] for name in ("value", "key", "query")))
        drops = np.concatenate(([0.0], np.sort(group.half_times[seed])))
        for m in range(len(drops) - 1):
            if np.isfinite(drops[m + 1]) and drops[m + 1] > CLEAR * drops[m]:
                middle = np.searchsorted(times, drops[m] + 0.5 * (drops[m + 1] - drops[m]))
                found.append((seed, m, matrices[min(middle, len(times) - 1)]))
        if np.isfinite(drops[-1]):
            found.append((seed, len(drops) - 1, matrices[-1]))
    return found


def compare(group: Group, tokens: Tokens) -> list[dict]:
    """For every plateau: distances to all regressions and to Eq 8, and squared errors."""
    d, ends = len(group.config.eigenvalues), fixed_point(group.config.eigenvalues, group.config.inverse_context)
    regressions = [regression(tokens, k) for k in range(d + 1)]
    truth, rows = tokens.y[:, -1].numpy(), []
    for seed, m, matrix in plateau_matrices(group):
        given = answers(tokens, matrix)
        ideal = answers(tokens, np.diag(np.where(np.arange(d) < m, ends, 0.0)))
        rows.append(
            {
                "seed": seed,
                "m": m,
                "to_regression": np.array([distance(given, other, tokens) for other in regressions]),
                "to_eq_8": distance(given, ideal, tokens),
                "error": float(((given - truth) ** 2).mean()),
                "regression_error": float(((regressions[m] - truth) ** 2).mean()),
            }
        )
    return rows


def difference_at_fixed_points(group: Group, tokens: Tokens) -> np.ndarray:
    """Distance between Eq 8 with m eigenvectors and regression on m components, m = 0 .. D."""
    d, ends = len(group.config.eigenvalues), fixed_point(group.config.eigenvalues, group.config.inverse_context)
    ideals = [answers(tokens, np.diag(np.where(np.arange(d) < m, ends, 0.0))) for m in range(d + 1)]
    return np.array([distance(ideal, regression(tokens, m), tokens) for m, ideal in enumerate(ideals)])


def draw(groups: dict[int, Group], found: dict[int, list[dict]], limit: dict[int, np.ndarray]):
    """Which regression is nearest, errors, and the approach with N."""
    figure, axes = panels(1, 3, height=4.4)
    modes = len(groups[31].config.eigenvalues)
    table = np.full((modes + 1, modes + 1), np.nan)
    for m in range(modes + 1):
        rows = [row["to_regression"] for row in found[31] if row["m"] == m]
        if rows:
            table[m] = np.mean(rows, axis=0)
    ax = axes[0, 0]
    ax.imshow(table, cmap="Blues_r", vmin=0, vmax=1.1)
    for (i, j), value in np.ndenumerate(table):
        if np.isfinite(value):
            ax.text(
                j, i, f"{value:.2f}", ha="center", va="center", color="white" if value < 0.5 else "#222", fontsize=9
            )
    ax.set(xlabel="components m' of the regression", ylabel="eigenvectors m learned", xticks=range(modes + 1))
    ax.set(yticks=range(modes + 1), title="(A) distance to regression, N = 31")
    ax = axes[0, 1]
    for row in found[31]:
        first = row is found[31][0]
        ax.plot(row["m"], row["error"], "o", color=MEASURED, alpha=0.7, label="trained heads" if first else None)
        ax.plot(
            row["m"] + 0.12,
            row["regression_error"],
            "s",
            color="#d1603d",
            markersize=5,
            label="regression" if first else None,
        )
    ax.plot(range(modes + 1), groups[31].levels, **EXACT, label="Eq 5")
    ax.set(xlabel="eigenvectors m learned", ylabel="mean squared error, fresh prompts", xticks=range(modes + 1))
    ax.set_title("(B) errors, N = 31")
    ax.legend(fontsize=8)
    ax = axes[0, 2]
    for m, colour in zip(range(1, modes + 1), ["#1f6fb4", "#2a9d8f", "#8ab17d", "#d1603d"], strict=False):
        ax.plot(list(limit), [limit[n][m] for n in limit], color=colour, linewidth=1.2, label=f"m = {m}")
        for n, rows in found.items():
            for row in rows:
                if row["m"] == m:
                    ax.plot(n, row["to_regression"][m], "o", color=colour, markersize=4, alpha=0.7)
    ax.set(xscale="log", yscale="log", xlabel="context length N", ylabel="distance to regression with m components")
    ax.set_xticks(list(groups), [str(n) for n in groups])
    ax.set_yticks([0.05, 0.1, 0.2, 0.4], ["0.05", "0.1", "0.2", "0.4"])
    ax.minorticks_off()
    ax.set_title("(C) approach with N")
    ax.legend(fontsize=8)
    return figure


def eq_8(seen: Seen) -> Measured:
    """Distance to Eq 8, mean over the plateaus of each run, at every length."""
    each = {f"N = {n}": _by_run(rows, lambda row: row["to_eq_8"]) for n, rows in seen.found.items()}
    text = f"distance to Eq 8, as a share of the true answers: {by_group(each, spread)}"
    return Measured(text, np.concatenate([*each.values()]))


def nearest(seen: Seen) -> Measured:
    """Whether on every plateau of a run the regression with as many components is the nearest."""
    each = {n: _by_run(rows, lambda row: row["to_regression"].argmin() == row["m"]) for n, rows in seen.found.items()}
    told = "; ".join(
        f"N = {n}: {sum(row['to_regression'].argmin() == row['m'] for row in rows)} of {len(rows)} plateaus"
        for n, rows in seen.found.items()
    )
    text = f"the nearest of all regressions has m components: {told}"
    return Measured(text, (np.concatenate([*each.values()]) >= 1).astype(float))


def near(seen: Seen) -> Measured:
    """Distance to that regression, mean over the plateaus with m > 0 of each run, at the paper's length."""
    each = {f"N = {n}": _to_own(rows) for n, rows in seen.found.items()}
    text = f"distance to that regression, m > 0: {by_group(each, lambda v: spread(v, 2))}"
    return Measured(text, each[f"N = {CONTEXTS[0]}"])


def nearer_with_length(seen: Seen) -> Measured:
    """The exponent in N of the distance between Eq 8 and regression, one per m, against -1/2."""
    lengths, modes = np.log(list(seen.limit)), len(seen.groups[CONTEXTS[0]].config.eigenvalues)
    slopes = [np.polyfit(lengths, np.log([seen.limit[n][m] for n in seen.limit]), 1)[0] for m in range(1, modes + 1)]
    text = f"exponent of N, m = 1 .. {modes}: {', '.join(f'{x:.3f}' for x in slopes)}"
    return Measured(text, np.array(slopes) / -0.5, n=f"{modes} fixed points, {len(lengths)} lengths")


def least_squares(which: int) -> Callable[[Seen], Measured]:
    """Mean squared error of converged heads on noiseless prompts, where least squares makes none, by that of answering 0."""

    def measure(seen: Seen) -> Measured:
        modes = len(seen.groups[which].config.eigenvalues)
        last = {n: np.array([row["error"] for row in rows if row["m"] == modes]) for n, rows in seen.found.items()}
        text = "mean squared error, " + "; ".join(f"N = {n}: {spread(v)}" for n, v in last.items() if len(v))
        return Measured(f"{text}; answering 0 makes {sum(seen.groups[which].config.eigenvalues):.2f}", last[which])

    return measure


def _by_run(rows: list[dict], measure: Callable[[dict], float]) -> np.ndarray:
    """The mean over the plateaus of each run."""
    seeds = sorted({row["seed"] for row in rows})
    return np.array([np.mean([measure(row) for row in rows if row["seed"] == seed]) for seed in seeds], dtype=float)


def _to_own(rows: list[dict]) -> np.ndarray:
    return _by_run([row for row in rows if row["m"] > 0], lambda row: row["to_regression"][row["m"]])


CLAIMS: list[Claim[Seen]] = [
    Claim(
        "during the plateau with m eigenvectors the heads compute Eq 8",
        "Eq 8",
        eq_8,
        Together([Small(0.1, 0.25)] * len(CONTEXTS), [f"N = {n}" for n in CONTEXTS]),
        "what is left is the noise of SGD and the next mode on its way",
    ),
    Claim(
        "early stopping on a plateau gives principal component regression with the first m components",
        "section 3.3",
        nearest,
        Every(0.8, 1 / 5),
        "among regressions on the leading components; nearest is not near: see the next rows",
    ),
    Claim(
        "the heads approximately implement it",
        "section 3.3",
        near,
        Small(0.1, 0.25),
        "at the paper's length: regression divides by the covariance of the prompt, the heads by its mean",
    ),
    Claim(
        "in the limit of long prompts Eq 8 is that regression",
        "below Eq 8",
        nearer_with_length,
        Close(0.05, 0.2),
        "the covariance of a prompt is 1 / sqrt(N) from its mean",
    ),
    Claim(
        "converged, the heads approximately do least squares regression in context, N = 31",
        "section 3.3",
        least_squares(31),
        Small(0.02, 0.1),
        "as a share of the unit variance of the answers; Eq 5 gives this error",
    ),
    Claim(
        f"the same at N = {CONTEXTS[-1]}",
        "section 3.3, for long prompts",
        least_squares(CONTEXTS[-1]),
        Small(0.02, 0.1),
        "the limit that the paper names",
    ),
]
