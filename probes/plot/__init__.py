"""Plots for notebooks and papers, with matplotlib: `loss`, `heads`, `curves`, `spectrum`, `events`, `compare`.

    ax = probes.plot.heads(table, "effective_rank")      a figure of its own; ax.figure.savefig("map.pdf")
    probes.plot.curves(table, ["1.0"], ax=axes[0])       into axes of yours

Each takes a table, a run or events, draws into the axes given (or new ones), and returns them. Nothing global is
touched: no current figure, no settings. Colours can be told apart by the colour-blind and on paper.
"""

from probes.plot.compare import compare, own_event
from probes.plot.curves import MOST_HEADS, curves
from probes.plot.events import events
from probes.plot.heads import heads
from probes.plot.loss import loss
from probes.plot.spectrum import spectrum
from probes.plot.svg import as_svg

__all__ = ["MOST_HEADS", "as_svg", "compare", "curves", "events", "heads", "loss", "own_event", "spectrum"]
