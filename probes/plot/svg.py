"""A plot as SVG text that is the same bytes for the same input, for a page that is light or dark.

Everything a reader's settings could change is set aside while it is drawn. Ids come from a fixed salt, and there is no
date. Lines and letters take the colour of the text around them (`currentColor`), the background is the page's; letters
stay letters, so that they can be searched, read aloud and shown in any script that the reader's fonts have.
"""

import re
from collections.abc import Callable
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from probes.plot.canvas import matplotlib_or_say_so, quiet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any

_INK = "#010203"
"""Stands for the colour of the text around, until it is replaced."""

_SETTINGS = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "text.parse_math": True,  # our $ are escaped, see `plain`
    "savefig.transparent": True,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    "hatch.color": _INK,
    "legend.framealpha": 0.0,
}


def as_svg(draw: Callable[[], Axes], said: str, *, salt: str = "probes") -> str:
    """What `draw` draws, as an <svg> element to stand inside a page.

        as_svg(lambda: probes.plot.loss(run, events), "The loss falls in three steps, at ...")

    said is the sentence for those who do not see it. salt keeps the ids of several in one page apart.
    """
    matplotlib = matplotlib_or_say_so()
    from matplotlib import style

    with quiet(), style.context("default"), matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": salt}):
        figure: Any = draw().figure
        buffer = StringIO()
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=metadata)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)  # it would speak for the whole page
    opening, rest = text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    head = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {box.group()}'
    joined = 'style="width: 100%; height: auto; stroke-linejoin: round; stroke-linecap: butt"'
    return f'{head} role="img" aria-label="{escape(said)}" {joined}><title>{escape(said)}</title>{rest.rstrip()}\n'
