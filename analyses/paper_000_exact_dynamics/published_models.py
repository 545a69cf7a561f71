"""Figs 5 and 6 of paper 000 on the models it used: attention-only transformers of 1 to 4 layers, trained on text.

`--source hub` fetches them, attention and 24 embeddings a model: gigabytes, kept with the runs for the next call.
`--source FOLDER` reads copies (FOLDER/Attn_Only_2L512W_C4_Code/config.json, checkpoints/*.pth), `--source http...` asks
another server. Without a source nothing is fetched, and every row says what it waits for.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from analyses.paper_000_exact_dynamics.icl_emergence_claims import NOTCH
from analyses.paper_000_exact_dynamics.icl_emergence_measures import (
    Seen,
    by_convergence,
    by_size,
    earlier_if_deeper,
    falls_back,
    notched,
    settles_by,
)
from analyses.paper_000_exact_dynamics.icl_emergence_study import CONTROL, HORIZONS, layers
from analyses.paper_000_exact_dynamics.published_study import (
    DEPTHS,
    EMERGED,
    HUB,
    NAME,
    Published,
    emerged,
    open_model,
    prefix_matching,
)
from analyses.paper_000_exact_dynamics.transformer_runs import RUNS
from analyses.tools.claims import Claim, Measured, Unjudged, judged
from analyses.tools.draw import mode_colours, panels
from analyses.tools.page import Page
from analyses.tools.rules import AboveControls, Apart, AtMost, Every
from analyses.tools.study import REMOVED, Curve
from analyses.tools.verdicts import Verdict, average
from checkpoints import Run

WAITS = (
    "the numbers wait for a machine with a network (python -m analyses published_models --source hub) or for a copy of the models "
    "(--source FOLDER): nothing is fetched unless it is asked for"
)


def run(size: str = "quick", runs: Path = RUNS, source: str | None = None) -> Page:
    """Fetch, measure, draw, judge; without a source, a page that says what it waits for. Every size is the same."""
    models: dict[int, Run] = {}
    for depth in DEPTHS if source else ():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that their numbers are tokens is said by the facts
            models[depth] = open_model(depth, source or HUB, runs / "hub")
    return page_of(models)


def page_of(models: Mapping[int, Run]) -> Page:
    """The page on these models, by depth; on none of them, the page that waits."""
    whole = set(models) == set(DEPTHS)
    scores = {depth: prefix_matching(model) for depth, model in models.items()} if whole else {}
    when = {depth: emerged(curve) for depth, curve in scores.items()}
    studies = studied(models, when) if whole else {}
    return Page(
        "published_models",
        "The published attention-only models (Figs 5, 6)",
        SUMMARY + ("" if models else f" Here {WAITS}."),
        _facts(models, when),
        draw(studies, scores),
        "Time is relative to where the best prefix-matching score of each model is halfway (1 layer: the mean of that over the others).",
        judgements(studies, scores),
    )


def studied(models: Mapping[int, Run], when: Mapping[int, float]) -> dict[int, list[Published]]:
    """The control, and the models in which something emerged; none at all if nothing did."""
    usual = average([time for depth, time in when.items() if depth != CONTROL])
    if not np.isfinite(usual):
        return {}
    anchors = {CONTROL: usual} | {depth: time for depth, time in when.items() if depth != CONTROL and np.isfinite(time)}
    return {depth: [Published(models[depth], anchor, 1, HORIZONS)] for depth, anchor in anchors.items()}


def judgements(studies: dict[int, list[Published]], scores: Mapping[int, Curve]) -> list[Verdict]:
    """By what is there: all claims, or none."""
    if scores and not studies:
        nothing = "no head of any model comes to look up what followed: there is no time at which it emerged"
        return judged([WHEN, *(Unjudged(claim.says, claim.printed, nothing) for claim in CLAIMS)], scores)
    if not scores:
        return judged([Unjudged(claim.says, claim.printed, WAITS) for claim in (WHEN, *CLAIMS)], None)
    return judged([WHEN], scores) + judged(CLAIMS, Seen(studies, {}))  # pyright: ignore[reportArgumentType]


def _facts(models: Mapping[int, Run], when: Mapping[int, float]) -> str:
    names = f"hub:NeelNanda/{NAME.format('{1,2,3,4}')}; one model of each depth: 3 against 1 control"
    ends = ", ".join(
        f"{layers(d)} {len(m.steps)} checkpoints to {m.steps[-1]:.3g} {m.step_unit}s" for d, m in models.items()
    )
    times = ", ".join(f"{layers(d)} {t:.3g}" for d, t in when.items() if np.isfinite(t))
    return "; ".join(filter(None, [names, ends, f"emergence at {times}" if times else ""]))


def draw(studies: Mapping[int, list[Published]], scores: Mapping[int, Curve]) -> Figure:
    """Four panels; empty ones that say why, without models."""
    figure, axes = panels(1, 4, height=3.6)
    colours = dict(zip(sorted(scores), ("#777777", *mode_colours(3)), strict=False))
    titles = (
        "(A) best prefix-matching score",
        f"(B) QK effective rank, {REMOVED} removed by size",
        f"(C) QK effective rank, {REMOVED} earliest removed",
        "(D) subspace distance, OV and QK",
    )
    for depth, (steps, values) in scores.items():
        axes[0, 0].plot(steps, values, color=colours[depth], label=layers(depth))
    for depth, (study,) in studies.items():
        curves = (study.rank("qk", REMOVED), study.rank_by_convergence("qk"), study.distance(HORIZONS[-1]))
        for ax, (steps, values) in zip(axes[0, 1:], curves, strict=True):
            ax.plot(steps / study.anchor, values, color=colours[depth], label=layers(depth))
            ax.set(xlabel="tokens / tokens at emergence")
    for ax, title in zip(axes[0], titles, strict=True):
        ax.set(title=title)
        if ax.lines:
            ax.legend(fontsize=8)
        else:
            ax.text(
                0.5,
                0.5,
                "waits for --source hub (a network)\nor --source FOLDER (a copy of the models)",
                ha="center",
                fontsize=8,
            )
    axes[0, 0].set(xlabel="tokens")
    return figure


def can_look_up(scores: Mapping[int, Curve]) -> Measured:
    """The best score at the end."""
    last = {depth: float(values[-1]) for depth, (_, values) in scores.items()}
    told = "; ".join(f"{layers(depth)} {value:.2f}" for depth, value in last.items())
    deep = np.array([value for depth, value in last.items() if depth != CONTROL])
    return Measured(f"best prefix-matching score at the end: {told}", deep, np.array([last[CONTROL]]))


SUMMARY = (
    "The models of the paper itself: attention-only transformers of 1 to 4 layers that Nanda trained on text and code, with LayerNorm and "
    "biases. When in-context learning emerges is read off what their heads attend to on random repeats. One model of each depth: no word "
    "here is worth more than one chance in four."
)
_V = Apart(NOTCH, " %", 100)
WHEN: Claim[Mapping[int, Curve]] = Claim(
    "in-context learning emerges with 2 layers or more and not with 1",
    "section 4 (Olsson et al.)",
    can_look_up,
    Apart(EMERGED),
    "by what heads attend to on random repeats at varying distances",
)
CLAIMS: list[Claim[Seen]] = [
    Claim(
        "subspaces settle before or with emergence",
        "Fig 5",
        settles_by("emergence", lambda _: 1.0),
        Every(),
        "by 5 %, at every end chosen",
    ),
    Claim("especially in deeper models", "Fig 5", earlier_if_deeper, AboveControls(), "3 and 4 layers against 2"),
    Claim(
        "OV effective rank dips around emergence, and not at 1 layer",
        "Fig 6A, k = 0",
        notched(by_size("ov", 0)),
        _V,
        "the plain rank",
    ),
    Claim(
        "marginalized OV rank dips around emergence, and not at 1 layer (removed in order of convergence)",
        "Fig 6A, k = 4",
        notched(by_convergence("ov")),
        _V,
        "as the paper describes it",
    ),
    Claim(
        "at 1 layer OV effective rank rises monotonically",
        "section 4, Fig 6A",
        falls_back,
        AtMost(0.1),
        "a fall of a tenth of the range is more than noise",
    ),
    Claim(
        "QK effective rank dips around emergence, and not at 1 layer",
        "Fig 6B, k = 0",
        notched(by_size("qk", 0)),
        _V,
        "the plain rank",
    ),
    Claim(
        "marginalized QK rank dips around emergence, and not at 1 layer (removed in order of convergence)",
        "Fig 6B, k = 4",
        notched(by_convergence("qk")),
        _V,
        "as the paper describes it",
    ),
    Claim(
        "(ours) the same, removed by size",
        "beside Fig 6B, k = 4",
        notched(by_size("qk", REMOVED)),
        _V,
        "without the four largest components at every step",
    ),
]
