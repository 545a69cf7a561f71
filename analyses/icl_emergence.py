"""Figs 5 and 6 of paper 000: what the probes see when attention-only transformers begin to learn in context.

One to four layers on the repeated-subsequence task, three seeds each; the 1-layer model, which cannot solve it, is the
control in the same axes. Quick: 12 runs, 12 minutes of processor time to train and one to measure, so seven or eight
minutes on two cores. Expect: accuracy on repeated tokens .91 - .94 at 2 - 4 layers against .09; the QK rank without its
four largest components dips by 7 - 20 % at emergence against at most 6 % in the control; induction heads form with it.
"""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from tqdm import tqdm

import probes
from analyses.draw import mode_colours, panels
from analyses.mode_reach import draw_reach, reach_verdicts, yardstick
from analyses.page import Page
from analyses.study import (
    Curve,
    Study,
    cliff,
    curve,
    dip,
    each,
    first_above,
    halfway_down,
    metric,
    nearest_peak,
    shade,
    show,
)
from analyses.transformer_runs import RUNS, attention_only_runs
from analyses.verdicts import FAILS, HOLDS, IN_PART, Verdict, average, beyond, seen, seen_only_here, spread, together
from checkpoints import Run
from probes.mode_shapes import fit_shapes

HORIZONS = (1.25, 1.6, 2.0)  # of the step of emergence, taken as the end
EARLIER, LATER = 0.7, 1.4  # of the step of emergence: where drift is compared with that at emergence
SPACING = {"toy": 20, "quick": 50, "paper": 50}  # of the drift, in steps
CONTROL = 1  # layers
AXIS = "step / step of emergence"


class Emergence(Study):
    """A run of an attention-only model. Its anchor is the step at which in-context learning emerged."""

    def rank(self, circuit: str, k: int = 0) -> Curve:
        """Mean over heads."""
        return self.steps, self.curves[circuit].rank(k)

    def norm_curvature(self) -> Curve:
        """Of OV and QK together."""
        norm = np.hypot(self.curves["ov"].norm, self.curves["qk"].norm)
        return self.steps[1:], probes.norm_curvature(norm[1:], self.steps[1:])

    def distance(self, horizon: float) -> Curve:
        """Mean over OV and QK of all heads, as in Fig 5, from the checkpoint at this multiple of emergence."""
        end = self.end(horizon)
        return self.steps, np.mean([c.distance(end) for c in self.curves.values()], axis=0)

    def column_distance(self, horizon: float) -> Curve:
        """Of OV, mean over heads."""
        return self.steps, self.curves["ov"].distance(self.end(horizon), columns=True)

    def drift(self) -> Curve:
        """Mean over OV and QK of all heads."""
        return self.curves["ov"].drift_steps, np.mean([c.mean_drift for c in self.curves.values()], axis=0)

    @cached_property
    def autocorrelation(self) -> Curve:
        """Lag and curvature of A in log lag."""
        found = probes.loss_autocorrelation_curvature(metric(self.run, "loss").to_numpy())
        return found["lag"].to_numpy(), found["curvature"].to_numpy()

    def heads(self, score: str) -> dict[tuple[int, int], pd.Series]:
        """One of the scores logged in training, by layer and head."""
        names = [str(name) for name in self.run.metrics.columns if str(name).startswith(f"{score}.")]
        return {(int(n.split(".")[1]), int(n.split(".")[2])): metric(self.run, n) for n in names}

    def best(self, score: str) -> tuple[int, int]:
        """The head that ends with the highest score."""
        found = self.heads(score)
        return max(found, key=lambda head: found[head].iloc[-1])

    def best_score(self, score: str) -> Curve:
        """Of that head."""
        return curve(self.heads(score)[self.best(score)])


Number = Callable[[Emergence], float]


def accuracy(run: Run) -> pd.Series:
    """On repeated tokens, averaged over 25 steps."""
    return smooth(run, "accuracy_repeated")


def smooth(run: Run, name: str) -> pd.Series:
    """A metric of every step, averaged over 25 of them."""
    return pd.Series(metric(run, name).rolling(25, min_periods=1, center=True).mean())


def final_accuracy(run: Run) -> float:
    """Over the last tenth of the run."""
    values = run.metrics["accuracy_repeated"]
    return float(values.iloc[-len(values) // 10 :].mean())


def emergence(run: Run, share: float = 0.5) -> float:
    """When accuracy on repeated tokens reaches half (or another share) of its end; NaN if it never exceeds one half."""
    end = final_accuracy(run)
    return first_above(accuracy(run), share * end) if end > 0.5 else np.nan


def run(size: str = "quick", runs: Path = RUNS) -> Page:
    """Train or load, measure, draw, judge."""
    trained = attention_only_runs(size, runs)
    last = trained[2][0].steps[-1]
    when = [emergence(run) for run in trained[2]]
    usual = _or(average(when), last / 2)
    studies = {
        depth: [Emergence(run, _or(emergence(run), usual), SPACING[size], HORIZONS) for run in group]
        for depth, group in trained.items()
    }
    for study in tqdm([s for group in studies.values() for s in group], desc="measuring", unit="run", disable=None):
        _ = study.curves, study.alignment
    modes = {"linear head": [yardstick()]} | {_layers(d): [s.alignment.modes for s in g] for d, g in studies.items()}
    config = trained[2][0].config
    task, optimizer = config["task"], config["optimizer"]
    return Page(
        "icl_emergence",
        "In-context learning emerges in attention-only transformers (Figs 5, 6)",
        SUMMARY,
        f"{task['length']} tokens of {task['vocabulary']}, {task['copies']} copies of {task['subsequence']}; {config['n_heads']} heads of "
        f"{config['d_head']}, d_model {config['d_model']}; AdamW, learning rate {optimizer['learning_rate']:g}, weight decay "
        f"{optimizer['weight_decay']:g}, batch {config['batch']}; {last} steps; {len(studies[2])} seeds per depth",
        draw(studies, modes),
        CAPTION,
        judgements(studies) + reach_verdicts(modes, [_layers(depth) for depth in studies if depth != CONTROL]),
    )


SUMMARY = (
    "In-context learning emerges suddenly at 2, 3 and 4 layers and never at 1, and a cliff of the plain loss marks it. Of the dips of "
    "effective rank only the marginalized one of QK sets the models that learn apart from the one that cannot: the plain rank dips there "
    "as well. When subspaces 'settle' depends on where training is stopped, in the control too; their drift, which needs no end, stays up "
    "until emergence and then falls. Modes look logistic more often than not, but the large ones do not come first."
)
CAPTION = (
    "Time is relative to the step at which each run reaches half of its final accuracy on repeated tokens (1 layer, which never "
    "learns: the mean of it over the 2-layer runs). Shaded: from a tenth to nine tenths of the final accuracy. Bands: mean and "
    "standard deviation over seeds. The 1-layer model is the control: whatever it shares with the others is no sign of emergence."
)


def _layers(depth: int) -> str:
    return f"{depth} layer" + ("s" if depth > 1 else "")


def _colours(depths: list[int]) -> dict[int, tuple | str]:
    others = [depth for depth in depths if depth != CONTROL]
    return {CONTROL: "#777777"} | dict(zip(others, mode_colours(len(others)), strict=True))


def draw(studies: dict[int, list[Emergence]], modes: dict[str, list[pd.DataFrame]]):
    """Four rows: behaviour, ranks, where and how fast things move, and single heads of one run."""
    figure, axes = panels(4, 4, height=3.3)
    colours, control, two = _colours(list(studies)), studies[CONTROL], studies[2]
    grid = np.linspace(0.02, min(s.steps[-1] / s.anchor for group in studies.values() for s in group), 300)

    def by_depth(ax, values: Callable[[Emergence], Curve], linestyle: str = "-", *, labels: bool = True) -> None:
        for depth, group in studies.items():
            show(ax, group, values, grid, colours[depth], _layers(depth) if labels else None, linestyle)

    by_depth(axes[0, 0], lambda s: curve(accuracy(s.run)))
    axes[0, 0].set(title="(A) accuracy on repeated tokens", ylabel="share right", ylim=(0, 1))
    for depth in (CONTROL, 2):
        for name, style in (("repeated", "-"), ("new", ":")):
            label = f"{name}, {_layers(depth)}"
            show(
                axes[0, 1],
                studies[depth],
                lambda s, n=name: curve(smooth(s.run, f"loss_{n}")),
                grid,
                colours[depth],
                label,
                style,
            )
    axes[0, 1].set(title="(B) loss on new and repeated tokens", ylabel="cross-entropy (nats)")
    by_depth(axes[0, 2], lambda s: s.best_score("prefix_matching"))
    by_depth(axes[0, 2], lambda s: s.best_score("previous_token"), ":", labels=False)
    axes[0, 2].set(
        title="(C) best induction (solid) and\nprevious-token head (dots)", ylabel="share of attention", ylim=(0, 1)
    )
    draw_reach(axes[0, 3], modes)
    axes[0, 3].set_title("(D) shapes of OV and QK modes")

    for ax, letter, circuit, k in zip(axes[1], "EFG", ("qk", "qk", "ov"), (0, 4, 0), strict=False):
        by_depth(ax, lambda s, circuit=circuit, k=k: _from_one(s.rank(circuit, k)))
        name = f"{circuit.upper()} effective rank" + (f", {k} removed" if k else "")
        ax.set(title=f"({letter}) {name}", ylabel="mean over heads / at the start")
    for k, colour in enumerate(mode_colours(5)):
        show(axes[1, 3], two, lambda s, k=k: s.rank("qk", k), grid, colour, f"{k} removed")
        show(axes[1, 3], control, lambda s, k=k: s.rank("qk", k), grid, colour, None, ":")
    axes[1, 3].set(title="(H) QK marginalized rank,\n2 layers (dots: 1 layer)", ylabel="mean over heads")

    ax = axes[2, 0]
    by_depth(ax, lambda s: s.distance(HORIZONS[-1]))
    for horizon, style in zip(HORIZONS[:-1], (":", "--"), strict=True):
        show(ax, two, lambda s, h=horizon: s.distance(h), grid, colours[2], f"2 layers, end: {horizon:g} x", style)
    config = two[0].run.config
    level = probes.random_subspace_level(config["d_head"], config["d_model"])
    ax.axhline(level, color="black", linewidth=1)
    ax.text(grid[-1], level + 0.01, "random subspace", fontsize=8, va="bottom", ha="right")
    ax.set(
        title=f"(I) subspace distance, end: {HORIZONS[-1]:g} x", ylabel="share of ||M(end)||, OV and QK", ylim=(0, 0.85)
    )
    by_depth(axes[2, 1], lambda s: s.drift())
    axes[2, 1].set(
        title=f"(J) drift per {two[0].spacing} steps, OV and QK", ylabel="movement of the row space", yscale="log"
    )
    by_depth(axes[2, 2], lambda s: s.norm_curvature())
    axes[2, 2].set(title="(K) norm curvature of OV and QK", ylabel="d²||M|| / d(ln step)²")
    by_depth(axes[2, 3], lambda s: s.autocorrelation)
    axes[2, 3].set(title="(L) loss autocorrelation, curvature", ylabel="d²A / d(ln lag)²")

    _draw_heads(axes[3], studies)
    timed = [ax for ax in axes.flat if ax is not axes[0, 3]]
    for ax in timed:
        label = AXIS if ax is not axes[2, 3] else AXIS.replace("step", "lag", 1)
        ax.set(xlim=(0, grid[-1]), xlabel=label)
        ax.legend(fontsize=7)
    learned = [s for depth, group in studies.items() if depth != CONTROL for s in group]
    shade(timed, *(average([emergence(s.run, x) / s.anchor for s in learned]) for x in (0.1, 0.9)))
    return figure


def _draw_heads(axes: np.ndarray, studies: dict[int, list[Emergence]]) -> None:
    """Single heads: what they attend to, their ranks, how the modes of the induction head grow; and the loss."""
    study, deepest = studies[2][0], studies[max(studies)][0]
    found = deepest.heads("prefix_matching")
    layers = mode_colours(max(studies))
    for (layer, head), values in found.items():
        label = f"layer {layer}" if head == 0 else None
        axes[0].plot(values.index / deepest.anchor, values, color=layers[layer], linewidth=1.5, label=label)
    axes[0].set(
        title=f"(M) induction by head, {_layers(max(studies))}, seed 0", ylabel="prefix-matching score", ylim=(0, 1)
    )

    ranks = study.curves["qk"].ranks[..., 4]
    for (layer, head), colour in zip(np.ndindex(*ranks.shape[1:]), mode_colours(ranks[0].size), strict=True):
        axes[1].plot(
            study.steps / study.anchor, ranks[:, layer, head], color=colour, label=f"layer {layer}, head {head}"
        )
    axes[1].set(title="(N) QK effective rank, 4 removed,\nby head, 2 layers, seed 0", ylabel="effective rank")

    layer, head = study.best("prefix_matching")
    modes = study.alignment.trajectories
    modes = modes.query("circuit == 'qk' and layer == @layer and head == @head")
    for (mode, values), colour in zip(modes.groupby("mode"), mode_colours(4), strict=True):
        fit = fit_shapes(values["measured"].to_numpy(), values["step"].to_numpy())["logistic"]
        axes[2].plot(
            values["step"] / study.anchor,
            values["measured"],
            color=colour,
            linewidth=2.2,
            alpha=0.85,
            label=f"mode {mode}, R² {fit.r2:.3f}",
        )
        axes[2].plot(values["step"] / study.anchor, fit.curve, color="black", linewidth=0.9)
    axes[2].set(
        title="(O) QK modes of the induction head and\ntheir logistics (black), 2 layers, seed 0", ylabel="u_k' M v_k"
    )

    colours = _colours(list(studies))
    for depth in (CONTROL, 2):
        one = studies[depth][0]
        loss = smooth(one.run, "loss")
        axes[3].plot(loss.index / one.anchor, loss, color=colours[depth], label=_layers(depth))
        events = probes.find_transitions(metric(one.run, "loss"))
        for _, event in events[events["kind"] == "cliff"].iterrows():
            axes[3].axvline(
                event["step"] / one.anchor,
                color=colours[depth],
                linestyle="--",
                linewidth=1.2,
                label=f"cliff found, {_layers(depth)}",
            )
    axes[3].set(
        title="(P) loss over all tokens and what\nfind_transitions finds in it, seed 0", ylabel="cross-entropy (nats)"
    )


def _from_one(values: Curve) -> Curve:
    return values[0], values[1] / values[1][0]


def _or(value: float, default: float) -> float:
    return value if np.isfinite(value) else default


def judgements(studies: dict[int, list[Emergence]]) -> list[Verdict]:
    """The claims of section 4 on attention-only models, each with the 1-layer number beside it."""
    control = studies[CONTROL]
    deep = {depth: group for depth, group in studies.items() if depth != CONTROL}
    learned = [s for group in deep.values() for s in group]

    def by_depth(compute: Number, digits: int = 2, scale: float = 1.0) -> str:
        return "; ".join(f"{_layers(d)} {spread(scale * each(compute, group), digits)}" for d, group in studies.items())

    def seen_by_depth(compute: Number) -> str:
        return "; ".join(f"{_layers(depth)} {seen(each(compute, group))}" for depth, group in studies.items())

    def dips(circuit: str, k: int, claim: str, printed: str, why: str) -> Verdict:
        at = each(lambda s: dip(*s.rank(circuit, k), s.anchor)[1] / s.anchor, learned)

        def depth_of(study: Emergence) -> float:
            return dip(*study.rank(circuit, k), study.anchor)[0]

        deep_dips, control_dips = each(depth_of, learned), each(depth_of, control)
        return Verdict(
            claim,
            printed,
            f"depth in %: {by_depth(depth_of, 1, 100)}; the shallowest at 2 layers and more {100 * deep_dips.min():.1f}, the deepest at 1 layer "
            f"{100 * control_dips.max():.1f}. Lowest at {at.min():.2f} - {at.max():.2f} of emergence (2 layers and more)",
            beyond(deep_dips, control_dips),
            why,
        )

    def in_order(study: Emergence) -> float:
        """Rank correlation of k with where the curve without k components is lowest."""
        bottoms = [dip(*study.rank("qk", k), study.anchor)[1] for k in range(5)]
        return float(np.corrcoef(np.arange(5), rankdata(bottoms))[0, 1]) if np.ptp(bottoms) else 0.0

    def rising(study: Emergence) -> float:
        return float(np.mean(np.diff(study.rank("ov")[1]) > 0))

    def settled(horizon: float) -> Number:
        return lambda s: halfway_down(*s.distance(horizon)) / s.anchor

    def columns_settled(study: Emergence) -> float:
        return halfway_down(*study.column_distance(HORIZONS[-1])) / study.anchor

    def drift_against(when: float) -> Number:
        """Drift at emergence against drift at a multiple of it, each averaged over a tenth of that step around it."""

        def ratio(study: Emergence) -> float:
            at, speed = study.drift()
            here, there = (speed[np.abs(at / study.anchor / x - 1) < 0.1].mean() for x in (1.0, when))
            return float(here / there)

        return ratio

    def peak(values: Callable[[Emergence], Curve]) -> Number:
        scale = float(np.median([np.ptp(values(s)[1]) for s in learned]))
        return lambda s: nearest_peak(*values(s), s.anchor, scale)

    def cliff_of(study: Emergence) -> float:
        return cliff(metric(study.run, "loss"), study.anchor)

    def last_score(study: Emergence) -> float:
        return float(study.best_score("prefix_matching")[1][-1])

    def head_time(score: str) -> Number:
        return lambda s: probes.half_time(s.best_score(score)[1], s.best_score(score)[0]) / s.anchor

    end = each(lambda s: final_accuracy(s.run), learned)
    never = each(lambda s: final_accuracy(s.run), control)
    width = each(lambda s: (emergence(s.run, 0.9) - emergence(s.run, 0.1)) / s.anchor, learned)
    spans = {h: np.concatenate([each(settled(h), group) for group in deep.values()]) for h in HORIZONS}
    before = [bool((values <= 1.05).all()) for values in spans.values()]
    return [
        Verdict(
            "in-context learning emerges suddenly with 2 layers or more and never with 1",
            "section 4 (Olsson et al.)",
            f"final accuracy on repeated tokens: {by_depth(lambda s: final_accuracy(s.run))}. From a tenth to nine tenths of it within "
            f"{spread(width, 2)} of the step of emergence; steps "
            + "; ".join(f"{_layers(d)} {', '.join(f'{s.anchor:.0f}' for s in group)}" for d, group in deep.items()),
            HOLDS if end.min() > 0.8 and never.max() < 0.2 else IN_PART if end.min() > never.max() else FAILS,
            "in every seed: above .8 against below .2",
        ),
        Verdict(
            "(ours) induction heads form then, previous-token heads with them",
            "Olsson et al. 2022",
            f"best prefix-matching score at the end: {by_depth(last_score)}; its half-time / emergence, 2 layers and "
            f"more: {spread(each(head_time('prefix_matching'), learned), 2)}, of the best previous-token score {spread(each(head_time('previous_token'), learned), 2)}",
            beyond(each(last_score, learned), each(last_score, control)),
            "what heads attend to, measured on fixed sequences every 25 steps",
        ),
        Verdict(
            "the loss falls in a cliff then",
            "section 4, Fig 3",
            f"find_transitions reports a cliff within 30 % of emergence: {seen_by_depth(cliff_of)}",
            seen_only_here(each(cliff_of, learned), each(cliff_of, control)),
            "in the loss over all tokens, which is all a trainer sees",
        ),
        dips(
            "qk",
            0,
            "QK effective rank dips around emergence, and not at 1 layer",
            "Fig 6B",
            "the plain rank: judged by whether every dip is deeper than any of the control's",
        ),
        dips(
            "qk",
            4,
            "marginalized QK rank dips around emergence, and not at 1 layer",
            "Fig 6B, k = 4",
            "without the four largest components",
        ),
        dips("ov", 0, "OV effective rank dips around emergence, and not at 1 layer", "Fig 6A", "the plain rank of OV"),
        Verdict(
            "marginalized curves have their minima one after another",
            "section 4, Fig 6",
            f"rank correlation of k = 0 .. 4 with where the QK curve is lowest near emergence: {by_depth(in_order)}",
            HOLDS
            if each(in_order, learned).min() > 0.99
            else IN_PART
            if each(in_order, learned).mean() > 0.5
            else FAILS,
            "1 would be one after another in every run; at 1 layer the later minima are at the edge of what counts as near",
        ),
        Verdict(
            "at 1 layer OV effective rank rises monotonically",
            "section 4, Fig 6A",
            f"share of checkpoints at which it rises: {by_depth(rising)}",
            HOLDS if each(rising, control).min() > 0.9 else IN_PART if each(rising, control).mean() > 0.75 else FAILS,
            "mean over heads",
        ),
        Verdict(
            "subspaces settle before or with emergence",
            "Fig 5",
            "half-time of the distance / emergence, by what is taken as the end: "
            + "; ".join(f"{h:g} x: {by_depth(settled(h))}" for h in HORIZONS),
            HOLDS if all(before) else IN_PART if any(before) else FAILS,
            "it moves with the end chosen, in the control too; it would hold if no run were more than 5 % late at any horizon",
        ),
        Verdict(
            "(ours) the column space of OV, what heads write into, settles before or with emergence",
            "beside Fig 5",
            f"half-time of its distance / emergence, end at {HORIZONS[-1]:g} x: {by_depth(columns_settled)}",
            HOLDS
            if (each(columns_settled, learned) <= 1.05).all()
            else IN_PART
            if (each(columns_settled, learned) <= 1.05).mean() >= 0.5
            else FAILS,
            "Eq 16 is about the row space, this is its twin; by the same 5 %",
        ),
        Verdict(
            "(ours) row spaces keep moving until emergence and slow down after it",
            "beside Fig 5",
            f"drift at emergence / at {EARLIER:g} of it: {by_depth(drift_against(EARLIER))}; / at {LATER:g} of it: {by_depth(drift_against(LATER))}",
            together(
                *(beyond(each(drift_against(x), learned), each(drift_against(x), control)) for x in (EARLIER, LATER))
            ),
            "needs no end; judged against the control, which slows down steadily (where to compare was chosen after a first look at the curves)",
        ),
        Verdict(
            "peaks of the norm curvature mark emergence",
            "section 4, Fig 4B",
            f"a peak within a factor 1.5 of it: {seen_by_depth(peak(Emergence.norm_curvature))}",
            seen_only_here(
                each(peak(Emergence.norm_curvature), learned), each(peak(Emergence.norm_curvature), control)
            ),
            "norm of OV and QK of all heads",
        ),
        Verdict(
            "peaks of the loss autocorrelation's curvature mark emergence",
            "section 4, Fig 4A",
            f"a peak within a factor 1.5 of it: {seen_by_depth(peak(lambda s: s.autocorrelation))}",
            seen_only_here(
                each(peak(lambda s: s.autocorrelation), learned), each(peak(lambda s: s.autocorrelation), control)
            ),
            "of the training loss; the noise of the batches is in it",
        ),
    ]
