"""The loss over log steps as a still picture (`probes.plot.loss`), so that print, mail previews and readers without
scripts have it: event bands over it, learning rate and interventions below, and a sentence for those who do not see it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from probes.plot import as_svg
from probes.plot import loss as draw_loss
from probes.plot.canvas import HEADLINE, OTHER_EVENT, PALETTE, TROUBLE, axes_for, two_axes
from probes.reporting.page_data import EventData
from probes.series.logged import finite, interventions_of, learning_rate_name

WIDTHS = (11, 5)
"""In inches, four high: of the picture for a wide page and of that for a phone."""

_ROLES = {HEADLINE: "event", OTHER_EVENT: "event-other", PALETTE[0]: "accent", TROUBLE: "warn"}
"""Colours of the plot as the page's style sheet names them, so that both follow dark mode together."""


def loss_svg(
    metrics: pd.DataFrame | None, loss: str | None, events: Sequence[EventData], unit: str = "step", salt: str = ""
) -> tuple[tuple[str, ...], str]:
    """The picture, once for a wide page and once for a phone, and its sentence; no picture where there is no loss.

    salt keeps several in one page apart.
    """
    if metrics is None:
        return (), "No loss was logged, so there is no curve."
    if loss is None:
        return (), f"None of the {len(metrics.columns)} metrics that were logged is called a loss: there is no curve."
    at, values, bad = finite(metrics, loss)
    if len(values) < 2:
        return (), f"{loss} has {len(values)} finite values after {unit} 0: there is no curve to draw."
    rate, changes = learning_rate_name(metrics), interventions_of(metrics)
    sentence = (
        f"{loss} from {values[0]:.3g} at {unit} {at[0]:,.0f} to {values[-1]:.3g} at {unit} {at[-1]:,.0f}, "
        f"over the logarithm of the {unit}, with {len(events)} event{'s' * (len(events) != 1)} marked"
    )
    sentence += f"; {bad} values that are not finite are left out" if bad else ""
    sentence += "; the learning rate was not logged" if rate is None else ""
    sentence += f"; interventions at {', '.join(f'{step:,.0f}' for step in changes[:6])}" if changes else ""
    marked = pd.DataFrame(
        [("", one.step, one.low, one.high, one.headline) for one in events],
        columns=["run", "step", "low", "high", "headline"],
        index=[one.number for one in events],
    )

    def drawn(width: float) -> Any:
        upper, lower = two_axes(width, 4, 3.2) if rate is not None else (axes_for(None, width, 3.4), None)
        drawn = draw_loss(metrics, marked, metric=loss, ax=upper, below=lower)
        drawn.set_title("", loc="left")
        for axes in drawn.figure.axes:
            axes.spines[["top", "right"]].set_visible(False)
        return drawn

    pictures = []
    for width in WIDTHS:
        svg = as_svg(partial(drawn, width), sentence + ".", salt=f"checkpoint-probes{salt}-{width}")
        for colour, role in _ROLES.items():
            svg = svg.replace(colour.lower(), f"var(--{role})")
        pictures.append(svg)
    return tuple(pictures), sentence + "."
