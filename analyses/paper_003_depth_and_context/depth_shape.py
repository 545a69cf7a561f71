"""Result 8 and Fig 5c of paper 003: which depth belongs to which width.

From the deterministic equivalent, tabulated over widths, depths and contexts (a minute on one core at size quick, once).
Expect: width and depth together keep improving; L ~ N^nu for beta below 1, approached slowly; for beta above 1 about the
exponent 1 / (beta - 1 + 1/nu) in the paper's compute t P^2 N^2 L, and at fixed t and P only where nu is below 2.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analyses.paper_003_depth_and_context.runs import RUNS
from analyses.tools.claims import Claim, Measured, Unjudged, judged
from analyses.tools.draw import PRINTED, mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.rules import Close, Every, Together
from analyses.tools.verdicts import FAILS, HOLDS, IN_PART
from models.depth_and_context import laws
from models.depth_and_context.shapes import best_losses, best_shapes, full_compute_shapes
from models.depth_and_context.spectrum import power_law

Pair = tuple[float, float]  # nu, beta

EASY: Pair = (1.5, 0.7)  # beta below 1
HARD: tuple[Pair, ...] = ((1.5, 1.5), (1.5, 2.0), (2.5, 1.25))  # beta above 1, nu below and above 2
TABLES = {  # widths and depths at endless time and context, then widths, depths and contexts at fixed t P^2 N^2 L
    "toy": (np.geomspace(16, 256, 4), 2 ** np.arange(1, 5), np.geomspace(16, 128, 4), 2 ** np.arange(4), np.geomspace(4, 64, 4)),
    "quick": (np.geomspace(32, 8192, 7), 2 ** np.arange(1, 11), np.geomspace(16, 2048, 5), 2 ** np.arange(8), np.geomspace(4, 512, 5)),
    "paper": (np.geomspace(32, 131072, 13), 2 ** np.arange(1, 15), np.geomspace(16, 16384, 11), 2 ** np.arange(12), np.geomspace(4, 4096, 11)),
}  # fmt: skip
MODES = {"toy": 10**5, "quick": 10**8, "paper": 10**9}
BINS = {"toy": (20, 6), "quick": (60, 15), "paper": (200, 40)}  # modes kept one by one, and bins to a factor of ten


@dataclass(frozen=True)
class Seen:
    """Best losses [widths, depths] and best shapes at endless time and context, and shapes in the full compute, by pair."""

    widths: np.ndarray
    depths: np.ndarray
    losses: Mapping[Pair, np.ndarray]
    fixed: Mapping[Pair, np.ndarray]
    full: Mapping[Pair, np.ndarray]


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Compute or load, draw, judge. There is nothing to train."""
    widths, depths, narrow, shallow, contexts = TABLES[size]
    pairs = (EASY, *HARD)
    tables = {pair: shape_tables(pair, size, runs) for pair in pairs}
    seen = Seen(
        widths,
        depths,
        {pair: table["losses"] for pair, table in tables.items()},
        {pair: best_shapes(table["losses"], widths, depths, 120) for pair, table in tables.items()},
        {pair: table["full"] for pair, table in tables.items()},
    )
    return Page(
        "depth_shape",
        "The best shape of a model (Result 8, Fig 5c)",
        "More width and more depth together keep improving the loss. How they should grow together is L ~ N^ν for hard tasks "
        "(β below 1) only; for easier ones depth grows more slowly, because the terms of Eq 18 do not just add: a narrow "
        "model makes an error of order 1/N in what it has already learned.",
        f"RRS, {MODES[size]:.0e} modes, by the corrected equivalent of Result 7; endless t and P: widths to {widths[-1]:.0f}, depths to "
        f"{depths[-1]}; compute t P² N² L: widths to {narrow[-1]:.0f}, depths to {shallow[-1]}, contexts to {contexts[-1]:.0f}",
        draw(seen),
        "Left: the loss against N²L for width alone, depth alone and both together (ν = 1.5, β = 0.7). Middle and right: the best "
        "depth at each width, at endless t and P and at fixed t P² N² L, with the printed slope ν (dashed) and the corrected one "
        "(dotted). The table behind the right panel is coarse; its waves are taken for those of interpolation.",
        judged(CLAIMS, seen),
    )


def shape_tables(pair: Pair, size: str, runs: Path) -> dict[str, np.ndarray]:
    """Best losses and full-compute shapes of one pair; what was computed before is read, if it was the same."""
    widths, depths, narrow, shallow, contexts = TABLES[size]
    settings = np.concatenate([np.asarray(x, dtype=float) for x in (*TABLES[size], [MODES[size], *BINS[size]])])
    file = runs / f"depth-and-context-{size}" / f"shapes-nu{pair[0]:g}-beta{pair[1]:g}.npz"
    if file.exists():
        with np.load(file) as kept:
            if np.array_equal(kept["settings"], settings):
                return {name: kept[name] for name in ("losses", "full")}
    exact, per_decade = BINS[size]
    spectrum = power_law(*pair, MODES[size], exact=exact, per_decade=per_decade)
    found = {
        "losses": best_losses(spectrum, widths, depths),
        "full": full_compute_shapes(spectrum, narrow, shallow, contexts, 60),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, settings=settings, losses=found["losses"], full=found["full"])
    return found


def together(seen: Seen) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Compute N^2 L and loss: width alone at the least depth, depth alone at the least width, and along L ~ N^nu."""
    from scipy.interpolate import RectBivariateSpline

    n, depth, losses = np.log(seen.widths), np.log(seen.depths), seen.losses[EASY]
    surface = RectBivariateSpline(n, depth, np.log(losses))
    longest = min(n[-1], n[0] + (depth[-1] - depth[0]) / EASY[0])
    along = np.linspace(n[0], longest, 8)
    path = depth[0] + EASY[0] * (along - n[0])
    return {
        "only width": (np.exp(2 * n + depth[0]), losses[:, 0]),
        "only depth": (np.exp(2 * n[0] + depth), losses[0]),
        "both, L ~ N^ν": (np.exp(2 * along + path), np.exp(surface(along, path, grid=False))),
    }


def slopes(shapes: np.ndarray, parts: int) -> np.ndarray:
    """d ln L / d ln N in equal parts of the range of budgets; NaN where there is too little in one."""
    if len(shapes) < 3 * parts:
        return np.full(parts, np.nan)
    return np.array([np.polyfit(part[:, 0], part[:, 1], 1)[0] for part in np.array_split(shapes, parts)])


def slope_over(which: str, pairs: tuple[Pair, ...], law: Callable[[float, float], float]) -> Callable[[Seen], Measured]:
    """The slope over the wider half of the best shapes over a law, by pair; all four quarters are told."""

    def measure(seen: Seen) -> Measured:
        told, ratios = [], []
        for pair in pairs:
            shapes = getattr(seen, which)[pair]
            quarters, last = slopes(shapes, 4), slopes(shapes, 2)[-1]
            top = np.exp(shapes[-1]) if len(shapes) else (np.nan, np.nan)
            told.append(
                f"ν = {pair[0]:g}, β = {pair[1]:g}: {', '.join(f'{x:.3f}' for x in quarters)}, wider half {last:.3f} (to N = {top[0]:.0f}, "
                f"L = {top[1]:.0f}), expected {law(*pair):.3f}"
            )
            ratios.append(last / law(*pair))
        return Measured(
            "d ln L / d ln N by quarters: " + "; ".join(told),
            np.array(ratios),
            n=f"{len(pairs)} pairs (ν, β), by the theory",
        )

    return measure


def keeps_improving(seen: Seen) -> Measured:
    """Whether the loss falls by the same power at every step along L ~ N^nu; width and depth alone are told."""
    curves = together(seen)
    fall = {name: -np.diff(np.log(loss)) / np.diff(np.log(compute)) for name, (compute, loss) in curves.items()}
    text = "d ln loss / d ln N²L, first and last: " + "; ".join(
        f"{name}: -{x[0]:.3f}, -{x[-1]:.3f}" for name, x in fall.items()
    )
    both = fall["both, L ~ N^ν"]
    alone = max(fall["only width"][-1], fall["only depth"][-1])
    return Measured(
        text, (both > 10 * abs(alone)).astype(float), n=f"{len(both)} steps along one path, by the equivalent"
    )


def _each(pairs: tuple[Pair, ...]) -> list[str]:
    return [f"ν = {nu:g}, β = {b:g}" for nu, b in pairs]


_WAVES = "; the table is coarse, and single quarters wave about the slope"

CLAIMS: list[Claim[Seen] | Unjudged[Seen]] = [
    Claim(
        "width and depth together improve steadily with compute",
        "Fig 5c",
        keeps_improving,
        Every(chance=0.5),
        "along L ~ N^ν, each step judged against ten times what the last step in width or depth alone still gains",
    ),
    Claim(
        "the best shape is L ~ N^ν in t P² N² L, β < 1",
        "Result 8",
        slope_over("full", (EASY,), laws.printed_shape_exponent),
        Close(0.1, 0.3),
        "where the terms of Eq 18 add up; at these sizes still approached" + _WAVES,
    ),
    Claim(
        "the best shape is L ~ N^ν in t P² N² L, β > 1",
        "Result 8",
        slope_over("full", HARD, laws.printed_shape_exponent),
        Together([Close(0.1, 0.3)] * len(HARD), _each(HARD)),
        "Eq 18 leaves out N⁻¹ γ^-(1 - 1/ν), what a narrow model gets wrong of what it has learned; that is what depth has to be balanced with"
        + _WAVES,
    ),
    Claim(
        "(ours) for β > 1 it is L ~ N^(1/(β - 1 + 1/ν)) in t P² N² L",
        "balance of γ^-β and N⁻¹ γ^-(1 - 1/ν)",
        slope_over("full", HARD, laws.shape_exponent),
        Together([Close(0.1, 0.3)] * len(HARD), _each(HARD)),
        "γ grows with depth and with time, and both cost compute, which makes the balance of these two terms even"
        + _WAVES,
    ),
    Claim(
        "the best shape is L ~ N^ν at endless t and P",
        "Result 8 with N² L",
        slope_over("fixed", (EASY, *HARD), laws.printed_shape_exponent),
        Together([Close(0.1, 0.3)] * (1 + len(HARD)), _each((EASY, *HARD))),
        "for β < 1, and for ν > 2, it is the limit, and approached slowly from below; otherwise it is not",
    ),
    Claim(
        "(ours) for β > 1 and ν < 2 it is L ~ N^(1/(β - 1 + 1/ν)) there too",
        "as above, at fixed N² L",
        slope_over("fixed", HARD[:2], laws.fixed_time_shape_exponent),
        Together([Close(0.05, 0.15)] * 2, _each(HARD[:2])),
        {
            HOLDS: "the slope passes above the limit on its way, because N^-ν weighs more in the balance than its size",
            IN_PART: "the slope passes above the limit on its way, because N^-ν weighs more in the balance than its size: not there yet",
            FAILS: "not at these sizes",
        },
    ),
    Unjudged(
        "(ours) for β > 1 and ν > 2 it is L ~ N^ν there",
        "cross term falls with depth at fixed N² L",
        "the slope still rises at the largest sizes that can be tabulated (row above the last); a limit cannot be told from it",
    ),
]


def draw(seen: Seen):
    """Fig 5c and the shapes."""
    figure, axes = panels(1, 3, height=4.2)
    for (name, (compute, loss)), colour in zip(together(seen).items(), mode_colours(3), strict=True):
        axes[0, 0].plot(compute, loss, "o-", color=colour, markersize=4, label=name)
    axes[0, 0].set(xscale="log", yscale="log", xlabel="compute N² L", ylabel="best loss", title="ν = 1.5, β = 0.7")
    for ax, found, law, title in (
        (axes[0, 1], seen.fixed, laws.fixed_time_shape_exponent, "endless t and P"),
        (axes[0, 2], seen.full, laws.shape_exponent, "fixed t P² N² L"),
    ):
        for (pair, shapes), colour in zip(found.items(), mode_colours(len(found)), strict=True):
            if len(shapes) == 0:
                continue
            n, depth = np.exp(shapes).T
            ax.plot(n, depth, color=colour, linewidth=2.2, label=f"ν = {pair[0]:g}, β = {pair[1]:g}")
            ax.plot(n, depth[-1] * (n / n[-1]) ** laws.printed_shape_exponent(*pair), **PRINTED)
            ax.plot(n, depth[-1] * (n / n[-1]) ** law(*pair), ":", color=colour)
        ax.set(xscale="log", yscale="log", xlabel="width N", ylabel="best depth L", title=title, ylim=(0.8, None))
    for ax in axes[0]:
        ax.legend(fontsize=8)
    return figure
