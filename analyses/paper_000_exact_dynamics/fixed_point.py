"""Fig 1 of paper 000: where the parameters of the linear head end up.

Trains three context lengths, five seeds each (about 45 s on one core). Expect: the printed fixed point is within 2 % at
N = 128 and 12 % low for the smallest mode at N = 8; the exact one is within 1 % everywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from analyses.paper_000_exact_dynamics.linear_runs import CONTEXTS, RUNS, Group, three_modes
from analyses.tools.claims import Claim, Measured, by_group, judged
from analyses.tools.draw import EXACT, MEASURED, PRINTED, panels
from analyses.tools.page import Page
from analyses.tools.rules import Close, Every, Small, Together
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART, percent, spread
from models.linear_icl.theory import ExactTheory, PrintedTheory

SHOWN = 32  # the context length whose matrices are drawn
NULL_INIT = {"below": 0.02, "above": 0.06}  # of the entries of p1 and q2; the active block starts at 0.032


@dataclass(frozen=True)
class Seen:
    """The runs by context length, those whose null blocks start below and above the active one, and p2 q1 at the end."""

    groups: dict[int, Group]
    below: Group
    above: Group
    products: np.ndarray


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    groups = {context: three_modes(context, size, runs) for context in CONTEXTS}
    below, above = (three_modes(SHOWN, size, runs, null_init=NULL_INIT[name]) for name in ("below", "above"))
    products = final_products(groups[SHOWN])
    return Page(
        "fixed_point",
        "Fixed point of the linear head (Fig 1)",
        "After training, p2 q1 is diagonal in the basis of the input covariance. The printed fixed point describes its "
        "entries to leading order in 1/N; the exact one, which keeps the off-diagonal noise of short contexts, does so "
        "at every N tried.",
        groups[SHOWN].facts + f"; also N = {', '.join(str(n) for n in CONTEXTS if n != SHOWN)}",
        draw(groups, products),
        f"Left: p2 q1 at the end of training in the eigenbasis of the covariance, N = {SHOWN}, mean over seeds; beside it "
        "the two predictions. Right: the whitening factor s a (1 would be perfect whitening) against the context length; "
        "points are seeds, the curves the two theories.",
        judged(CLAIMS, Seen(groups, below, above, products)),
    )


def final_products(group: Group) -> np.ndarray:
    """p2 q1 in the eigenbasis, averaged over the last fifth of each run: [seeds, d, d]."""
    found = []
    for run in group.runs:
        basis = torch.tensor((run.theory or {})["mode_basis"], dtype=torch.float64)
        late = [step for step in run.steps if step >= 0.8 * run.steps[-1]]
        parts = [run.checkpoint(step) for step in late]
        found.append(torch.stack([basis.T @ part["p2"] @ part["q1"] @ basis for part in parts]).mean(0).numpy())
    return np.stack(found)


def draw(groups: dict[int, Group], products: np.ndarray):
    """Three matrices and the whitening factor against N."""
    figure, axes = panels(1, 4, height=4.2)
    group = groups[SHOWN]
    shown = {
        "measured": products.mean(0),
        "printed": np.diag(group.printed.fixed_point),
        "exact": np.diag(group.exact.fixed_point),
    }
    top = max(matrix.max() for matrix in shown.values())
    for ax, (title, matrix) in zip(axes[0], shown.items(), strict=False):
        ax.imshow(matrix, vmin=0, vmax=top, cmap="Blues")
        for (i, j), value in np.ndenumerate(matrix):
            ax.text(
                j,
                i,
                f"{abs(value) if abs(value) < 0.005 else value:.2f}",
                ha="center",
                va="center",
                color="white" if value > top / 2 else "#333",
            )
        ax.set(title=f"p2 q1, {title} (N = {SHOWN})", xticks=[], yticks=[])
    ax = axes[0, 3]
    s = np.array(group.config.eigenvalues)
    lengths = np.unique(np.round(np.geomspace(min(groups), max(groups), 40)).astype(int)).tolist()
    for k, eigenvalue in enumerate(s):
        printed = [eigenvalue * PrintedTheory(s, n, group.config.init).fixed_point[k] for n in lengths]
        exact = [eigenvalue * ExactTheory(s, n, group.config.init).fixed_point[k] for n in lengths]
        ax.plot(lengths, printed, **PRINTED, label="printed" if k == 0 else None)
        ax.plot(lengths, exact, **EXACT, label="exact" if k == 0 else None)
        ax.annotate(
            f"s = {eigenvalue:g}", (lengths[0], exact[0]), textcoords="offset points", xytext=(8, -13), fontsize=9
        )
    for n, one in groups.items():
        ends = one.per_seed("exact", "measured_end") * s
        label = "trained" if n == SHOWN else None
        ax.plot(np.full(ends.size, n), ends.ravel(), "o", color=MEASURED, markersize=5, alpha=0.7, label=label)
    ax.set(xscale="log", xlabel="context length N", ylabel="s a at the end", title="whitening factor")
    ax.set_xticks(list(groups), [str(n) for n in groups])
    ax.minorticks_off()
    ax.legend()
    return figure


def off_diagonal(seen: Seen) -> Measured:
    """The largest entry off the diagonal."""
    d = seen.products.shape[-1]
    share = np.abs(seen.products * (1 - np.eye(d))).max((1, 2)) / np.abs(seen.products).max((1, 2))
    return Measured(f"largest off-diagonal entry / largest entry: {spread(share)}", share)


def smallest_mode(theory: str) -> Callable[[Seen], dict[str, np.ndarray]]:
    """Where the smallest mode ends, as a ratio to a theory, by context length."""

    def ratios(seen: Seen) -> dict[str, np.ndarray]:
        return {
            f"N = {n}": group.per_seed(theory, "measured_end")[:, -1] / group.printed.fixed_point[-1]
            if theory == "printed"
            else group.per_seed(theory, "end_ratio")[:, -1]
            for n, group in seen.groups.items()
        }

    return ratios


def printed_end(seen: Seen) -> Measured:
    """Judged at the context length that is drawn."""
    ratios = smallest_mode("printed")(seen)
    return Measured("smallest mode, measured / printed: " + by_group(ratios, percent), ratios[f"N = {SHOWN}"])


def exact_end(seen: Seen) -> Measured:
    """Judged at every context length."""
    ratios = smallest_mode("exact")(seen)
    return Measured("smallest mode, measured / exact: " + by_group(ratios, percent), np.concatenate([*ratios.values()]))


def final_loss(seen: Seen) -> Measured:
    """The mean of the last 500 losses, against both theories."""
    ends = {
        n: np.array([a.loss["measured"].iloc[-500:].mean() for a in g.alignments["exact"]])
        for n, g in seen.groups.items()
    }
    printed = {f"N = {n}": ends[n] / g.printed.loss([1e9])[0] for n, g in seen.groups.items()}
    exact = {f"N = {n}": ends[n] / g.exact.final_loss for n, g in seen.groups.items()}
    text = f"measured / printed: {by_group(printed, percent)}. Measured / exact: {by_group(exact, percent)}"
    return Measured(text, printed[f"N = {SHOWN}"])


def loss_of_the_printed_end(seen: Seen) -> Measured:
    """The expected loss of the weights of the printed fixed point, p = q, against the printed loss. No run is needed."""
    told, ratios = [], []
    for n, group in seen.groups.items():
        root = np.sqrt(group.printed.fixed_point)
        printed, theirs = float(group.printed.loss([1e9])[0]), float(group.exact.loss_of(root, root))
        told.append(
            f"N = {n}: printed {printed:.4f}, of those weights {theirs:.4f}, the least {group.exact.final_loss:.4f}"
        )
        ratios.append(theirs / printed)
    return Measured("; ".join(told), np.array(ratios), n=f"{len(ratios)} context lengths, by the exact expected loss")


def from_zero(seen: Seen) -> Measured:
    """The null blocks beside the active ones, at the end."""
    share = np.array([a.null_growth for a in seen.groups[SHOWN].alignments["exact"]])
    return Measured(f"||(p1, q2)|| / ||(p2, q1)|| at the end: {spread(share, 4)}", share)


def null_norms(group: Group) -> tuple[np.ndarray, np.ndarray]:
    """||(p1, q2)|| at the start and at the end."""
    weights = [alignment.weights["null"] for alignment in group.alignments["exact"]]
    return np.array([w.iloc[0] for w in weights]), np.array([w.iloc[-1] for w in weights])


def towards_zero(seen: Seen) -> Measured:
    """Whether the null blocks lose half of their norm: started below the active block, and above it."""
    told, fell = [], []
    for group in (seen.below, seen.above):
        start, end = null_norms(group)
        entry, active = group.config.null_init, np.sqrt(group.config.init)
        told.append(f"entries of {entry:g} against {active:.3f}: ||(p1, q2)|| from {spread(start)} to {spread(end)}")
        fell.append(end < start / 2)
    _, level = null_norms(seen.groups[SHOWN])
    return Measured(
        "; ".join(told) + f"; control started from zero: {spread(level)}", np.concatenate(fell).astype(float)
    )


CLAIMS: list[Claim[Seen]] = [
    Claim(
        "p2 q1 ends diagonal in the eigenbasis of the covariance",
        "section 3, Fig 1A",
        off_diagonal,
        Small(0.03, 0.1),
        "what is off the diagonal has no sign of its own: SGD's noise would leave as much",
    ),
    Claim(
        "p2 q1 -> [(N+1)/N S + Tr S / N]^-1, precise quantitative agreement",
        "below Eq 10, Fig 1B",
        printed_end,
        Close(0.03, 0.1),
        "the printed form leaves out the off-diagonal noise of the empirical covariance: right to leading order in 1/N",
    ),
    Claim(
        "(ours) a = N/((N+1) s) [1 - R/((N+1+d) sqrt(s m))]",
        "exact flow",
        exact_end,
        Together([Close(0.02, 0.05)] * len(CONTEXTS), [f"N = {n}" for n in CONTEXTS]),
        "keeps that noise, and the finite set of tasks",
    ),
    Claim(
        "final loss 1/2 sum s (s + Tr S) / ((N+1) s + Tr S)",
        "section 3, Eq A114",
        final_loss,
        Close(0.03, 0.1),
        "beside it the least loss that the model can have, which the exact flow reaches",
    ),
    Claim(
        "that is the loss of the printed fixed point",
        "Eqs A111-A114",
        loss_of_the_printed_end,
        Close(0.001, 0.05),
        "A109 leaves the off-diagonal noise out of the loss as well; the split p = q, which Eq 12 implies, is not the best either",
    ),
    Claim(
        "null blocks p1, q2 stay at zero from zero",
        "section 3, Eq 8, A.10",
        from_zero,
        Small(0.02, 0.1),
        "on average their gradient vanishes; SGD moves them by its noise",
    ),
    Claim(
        "from a small non-zero start, p1 and q2 are driven towards zero",
        "section 3",
        towards_zero,
        Together([Every(), Every()], ["started below the active block", "started above it"]),
        {
            HOLDS: "whichever block starts larger",
            IN_PART: "only while the active block starts larger: the larger of the two pairs learns the tasks",
            FAILS: "not even where the active block starts larger",
        },
    ),
]
