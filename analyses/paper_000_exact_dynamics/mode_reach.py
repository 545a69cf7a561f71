"""How far linear theory reaches: do the modes of OV and QK grow along the logistic of Eq 13, and the large ones first?

The yardstick is the linear head of paper 000, for which both can be checked against theory: its modes are logistic. In
it, what is learned first is what the *inputs* are large in, and ends *smaller* (a_inf is about 1 / s); section 4 speaks
of large singular values of the weights instead. Modes below a tenth of the largest of their head are left out.
"""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy.stats import rankdata

import probes
from analyses.tools.claims import Claim, Measured, by_group
from analyses.tools.rules import Every
from analyses.tools.verdicts import spread
from checkpoints import open_run
from probes.series.growth import LAWS

YARDSTICK = Path(__file__).parents[2] / "checkpoints" / "reference" / "linear-icl"
COUNTED = 0.1  # of the largest mode of the head

_COLOURS = dict(zip(LAWS, ("#1f6fb4", "#d1603d", "#3a923a", "#999999"), strict=True))


def yardstick() -> pd.DataFrame:
    """The modes of the linear head."""
    return probes.align(open_run(YARDSTICK), circuits="product", modes=3).modes


def counted(modes: pd.DataFrame) -> pd.DataFrame:
    """The modes of a run that carry something."""
    largest = modes.groupby(["circuit", "layer", "head"])["end"].transform("max").to_numpy()
    return modes.loc[modes["end"].to_numpy() > COUNTED * largest]


def order(modes: pd.DataFrame) -> float:
    """Rank correlation, within a head, of where a mode ends with when it is halfway; mean over heads. -1: large first."""
    found = []
    for _, head in counted(modes).groupby(["circuit", "layer", "head"]):
        end, when = head["end"].to_numpy(), head["halfway"].to_numpy()
        if len(head) > 2 and np.ptp(when) > 0:
            found.append(np.corrcoef(rankdata(end), rankdata(when))[0, 1])
    return float(np.mean(found)) if found else np.nan


def summary(modes: pd.DataFrame) -> dict[str, float]:
    """Of one run: median R^2 of the logistic and of the best rival, how often the logistic wins, order and number."""
    kept = counted(modes)
    logistic = kept["r2 logistic"].to_numpy()
    rivals = np.max([kept[f"r2 {shape}"].to_numpy() for shape in LAWS if shape != "logistic"], axis=0)
    return {
        "logistic": float(np.median(logistic)),
        "best rival": float(np.median(rivals)),
        "wins": float((logistic > rivals).mean()),
        "order": order(modes),
        "modes": len(kept),
    }


def draw_reach(axes: Axes, groups: dict[str, list[pd.DataFrame]]) -> None:
    """R^2 of every shape, by group of runs: median and the middle half of all modes."""
    for i, tables in enumerate(groups.values()):
        kept = pd.concat([counted(table) for table in tables])
        for j, shape in enumerate(LAWS):
            low, middle, high = kept[f"r2 {shape}"].clip(lower=0).quantile([0.25, 0.5, 0.75])
            x = i + 0.18 * (j - 1.5)
            bars = [[middle - low], [high - middle]]
            axes.errorbar(
                [x], [middle], yerr=bars, fmt="o", color=_COLOURS[shape], capsize=3, label=shape if i == 0 else None
            )
    axes.set_xticks(range(len(groups)), list(groups), fontsize=8)
    axes.set(ylim=(-0.02, 1.02), ylabel="R², all modes counted")
    axes.legend(fontsize=8, loc="lower left")


class HasModes(Protocol):
    """Evidence of a page: the modes of each run by group, and the names of the groups that learned."""

    @property
    def modes(self) -> dict[str, list[pd.DataFrame]]:
        """By group; the linear head among them."""
        ...

    @property
    def groups(self) -> list[str]:
        """Those that learned; the others are controls."""
        ...


def told(evidence: HasModes, key: str) -> str:
    """A number of every group, mean and standard deviation over runs."""
    return by_group(
        {name: np.array([summary(t)[key] for t in tables]) for name, tables in evidence.modes.items()},
        lambda values: spread(values, 2),
    )


def of_learned(evidence: HasModes, key: str) -> np.ndarray:
    """A number of every run that learned."""
    return np.array([summary(table)[key] for name in evidence.groups for table in evidence.modes[name]])


def logistic(evidence: HasModes) -> Measured:
    """Whether the logistic is the best of four shapes for three quarters of the modes."""
    text = (
        f"share of modes for which the logistic is the best of four shapes: {told(evidence, 'wins')}. Median R² of the logistic: "
        f"{told(evidence, 'logistic')}; of the best rival: {told(evidence, 'best rival')}"
    )
    return Measured(text, (of_learned(evidence, "wins") > 0.75).astype(float))


def large_first(evidence: HasModes) -> Measured:
    """Whether modes that end large are halfway earlier."""
    text = f"rank correlation of where a mode ends with when it is halfway (-1: large first): {told(evidence, 'order')}"
    return Measured(text, (of_learned(evidence, "order") < -0.5).astype(float))


def reach_claims() -> list[Claim[Any]]:
    """Whether linear theory describes how modes grow in the runs that learned; the other groups are controls."""
    return [
        Claim(
            "modes follow the logistic of linear theory",
            "section 4: sequential learning of Eq 13",
            logistic,
            Every(),
            "three modes in four, best of logistic, exponential, power law and straight line over ln(step); the linear head is the yardstick",
        ),
        Claim(
            "large modes are learned first",
            "section 4, Eq 13",
            large_first,
            Every(),
            "a correlation below -.5; in the linear head itself the modes that end large come last, because a_inf is about 1 / s",
        ),
    ]
