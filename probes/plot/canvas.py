"""What all plots share: axes that belong to nobody else, colours, words as they are, a step axis that has a zero.

Nothing here is global. Without `ax` a figure of its own is made, which pyplot does not know: it is not left open, and a
notebook shows it because its axes can be shown. matplotlib is imported when something is drawn, not before.
"""

import math
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

PALETTE = ("#1F83C4", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#7F7FCF")
"""Okabe and Ito's colours, the blue a little lighter, without black and yellow: those vanish on a dark or a white page.
Two more of mid tone."""

GREY = "#808080"
HEADLINE, OTHER_EVENT, TROUBLE = "#E69F00", "#56B4E9", "#D55E00"
SMALL = "small"

_UNITS = {
    "step": "training step",
    "epoch": "epoch",
    "token": "tokens seen",
    "number": "number in the checkpoint's name (unit not known)",
}


def matplotlib_or_say_so() -> Any:
    """The library, or which extra brings it."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(
            "probes.plot draws with matplotlib, which is not installed: "
            'pip install "checkpoint-probes[report]", or matplotlib itself',
            name="matplotlib",
        ) from error
    return matplotlib


def axes_for(ax: Axes | None, width: float, height: float) -> Axes:
    """The given axes, or those of a new figure of so many inches that nothing else knows."""
    matplotlib_or_say_so()
    if ax is not None:
        return ax
    return new_figure(width, height).add_subplot(axes_class=_shown_axes())


def two_axes(width: float, height: float, ratio: float) -> tuple[Axes, Axes]:
    """A wide one above and a low one below it in a new figure; the upper is `ratio` times as high."""
    figure = new_figure(width, height)
    above, below = figure.add_gridspec(2, 1, height_ratios=(ratio, 1), hspace=0.06)
    upper = figure.add_subplot(above, axes_class=_shown_axes())
    return upper, figure.add_subplot(below, axes_class=_shown_axes(), sharex=upper)


def new_figure(width: float, height: float) -> Any:
    """An empty figure, laid out so that nothing overlaps."""
    matplotlib_or_say_so()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


@cache
def _shown_axes() -> type:
    from matplotlib.axes import Axes as PlainAxes

    class ShownAxes(PlainAxes):
        """Axes that a notebook shows as the picture they are in."""

        def _repr_png_(self) -> bytes:
            from io import BytesIO

            buffer = BytesIO()
            whole: Any = self.figure
            with quiet():
                whole.savefig(buffer, format="png", dpi=110)
            return buffer.getvalue()

    return ShownAxes


@contextmanager
def quiet() -> Iterator[None]:
    """Without matplotlib's warning for every letter that its font lacks: a box stands there, the name is not ours."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        yield


# --- words


def plain(text: object, longest: int = 48) -> str:
    """A name as it is, on one line: no formulas, nothing that breaks a file, and of a long one both ends."""
    letters = (" " if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") else letter for letter in str(text))
    line = " ".join("".join(letters).split())
    if len(line) > longest:
        line = f"{line[: longest // 2]} … {line[len(line) - longest // 2 + 3 :]}"
    return line.replace("$", r"\$")


def legend_name(text: object) -> str:
    """A name for a legend, which leaves out those that begin with an underscore."""
    line = plain(text)
    return f" {line}" if line.startswith("_") else line


def unit_label(unit: str) -> str:
    """What the step axis counts."""
    return _UNITS.get(unit, plain(unit))


def counted(number: int, one: str, several: str | None = None) -> str:
    """So many of something."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def titled(ax: Axes, *parts: object, above: float = 4) -> None:
    """What is shown, flush left, so that it is read before the rest; `above` the axes by so many points."""
    width = _letters(ax, 5.6)
    lines = [line for part in parts for line in wrap(str(part), width)]
    ax.set_title("\n".join(lines), loc="left", fontsize="medium", pad=above)


def value_label(ax: Axes, text: str) -> None:
    """What the other axis shows, on two lines where it is longer than the axis."""
    height = ax.get_window_extent().height / ax.figure.dpi * 72
    ax.set_ylabel("\n".join(wrap(text, max(12, int(height / 5.6)))))


def footnote(ax: Axes, sentences: Iterable[str], *, below: float = 34) -> None:
    """What a reader has to know besides, in small letters under the axis; `below` it by so many points."""
    text = " ".join(sentence if sentence.endswith(".") else f"{sentence}." for sentence in sentences)
    if text:
        ax.annotate(
            "\n".join(wrap(text, _letters(ax, 4.2))),
            (0, 0),
            xycoords="axes fraction",
            xytext=(0, -below),
            textcoords="offset points",
            va="top",
            fontsize="x-small",
            alpha=0.85,
            annotation_clip=False,
        )


def _letters(ax: Axes, points: float) -> int:
    """How many letters of so many points fit over the axes."""
    width = ax.get_window_extent().width / ax.figure.dpi * 72
    if isinstance(ax, _shown_axes()):  # of a figure of ours, which is not laid out yet: they will be wider
        width *= 1.12
    return max(24, int(width / points))


def said_instead(ax: Axes, text: str) -> None:
    """A sentence where a curve would be."""
    lines = "\n".join(wrap(text, max(20, int(0.8 * _letters(ax, 5.5)))))
    ax.text(0.5, 0.5, lines, ha="center", va="center", transform=ax.transAxes, fontsize=SMALL)


# --- steps


def step_axis(ax: Axes, steps: Sequence[float] | np.ndarray, label: str, *, log: bool = True) -> None:
    """Scale, limits, ticks and label of the axis of steps: logarithmic, with a place for 0 where there is a step 0."""
    at = np.asarray(steps, dtype=np.float64)
    at = at[np.isfinite(at)]
    positive = at[at > 0]
    ax.set_xlabel(label)
    if not len(at):
        return
    low, high = float(at.min()), float(at.max())
    if not log or not len(positive):
        margin = 0.02 * (high - low) or 1.0
        ax.set_xlim(low - margin, high + margin)
        return
    first = float(positive.min())
    if low <= 0:
        decades = max(1.0, math.log10(high / first))
        ax.set_xscale("symlog", linthresh=first, linscale=max(0.08, 0.08 * decades), subs=range(2, 10))
        ax.set_xlim(0, high * 10 ** (0.02 * decades) if high > first else 1.05 * first)
    else:
        ax.set_xscale("log")
        margin = (high / low) ** 0.02 if high > low else 2.0
        ax.set_xlim(low / margin, high * margin)
    ax.xaxis.set_major_locator(_step_locator()(first, low <= 0))
    ax.xaxis.set_minor_formatter("")
    ax.xaxis.set_major_formatter(lambda value, _: short_number(value))


def short_number(value: float) -> str:
    """A step as people say it: 500, 20k, 3M, 1.5B."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.4g}{letter}"
    return f"{value:.4g}" if value < 1000 else f"{value:,.0f}"


def nice_steps(low: float, high: float, most: int) -> list[float]:
    """Round numbers between two positive ones: powers of ten, with 2 and 5 between them where there is room."""
    if not 0 < low < high:
        return [low] if low > 0 else []
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        found = [digit * 10.0**power for power in decades for digit in digits]
        found = [step for step in found if low * 0.999 <= step <= high * 1.001]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]


@cache
def _step_locator() -> type:
    from matplotlib.ticker import Locator

    class StepLocator(Locator):
        """Round steps in what is seen, and 0 where the axis has it."""

        def __init__(self, first: float, has_zero: bool) -> None:
            self.first, self.has_zero = first, has_zero

        def __call__(self) -> list[float]:
            low, high = sorted(self._of().get_view_interval())
            return self.tick_values(low, high)

        def _of(self) -> Any:
            return self.axis

        def tick_values(self, vmin: float, vmax: float) -> list[float]:
            axes = self._of().axes
            room = max(3, int(axes.get_window_extent().width / axes.figure.dpi / 0.62))
            zero = [0.0] if self.has_zero and vmin <= 0 <= vmax else []
            ticks = nice_steps(max(vmin, self.first if self.has_zero else vmin), vmax, room - len(zero))
            return zero + (ticks or [self.first] * (vmin <= self.first <= vmax))

    return StepLocator
