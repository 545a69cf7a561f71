"""The losses of all runs in one still picture, by step and by each run's own event (`probes.plot.compare`)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from probes.plot.canvas import axes_for
from probes.plot.compare import compare
from probes.plot.source import as_numbers
from probes.plot.svg import as_svg
from probes.reporting.comparison_data import Comparison
from probes.reporting.job import Looked
from probes.series.logged import loss_name


def compare_svgs(
    comparison: Comparison | None, runs: Sequence[Looked], controls: Sequence[Looked]
) -> list[tuple[str, str]]:
    """Pictures, each with a sentence for those who do not see it; none where fewer than two runs logged a loss."""
    given, against = _losses(runs), _losses(controls)
    if comparison is None or len(given) + len(against) < 2 or not given:
        return []
    unit = runs[0].run.step_unit if runs[0].run else "step"
    anchors = {one.name: one.at for one in comparison.runs if one.at is not None}
    aligned = [("step", "step")] + ([("event", anchors)] if any(one.own for one in comparison.runs) else [])
    found = []
    for how, align in aligned:
        lacking = [one.name for one in (*runs, *controls) if one.name not in {**given, **against}]
        said = f"Loss of {len(given)} runs" + (f" and {len(against)} controls" if against else "")
        said += f" over the {unit}" if how == "step" else f" over {unit} / {unit} of each run's own event"
        said += f"; without a loss: {', '.join(name[:40] for name in lacking[:3])}" if lacking else ""

        def draw(align=align):
            small = axes_for(None, 4.8, 3.3)  # two fit side by side, and one a phone, with letters that can be read
            return compare(given, controls=against or None, metric="loss", align=align, ax=small)

        found.append((as_svg(draw, said, salt=f"compare-{how}"), f"{said}."))
    return found


def _losses(several: Sequence[Looked]) -> dict[str, pd.DataFrame]:
    found = {}
    for one in several:
        name = loss_name(one.metrics)
        if one.metrics is None or name is None:
            continue
        loss = as_numbers(one.metrics[name])
        if np.isfinite(loss).any():
            numbers = pd.DataFrame({"loss": loss}, index=one.metrics.index)
            numbers.attrs["step_unit"] = one.run.step_unit if one.run else "step"
            found[one.name] = numbers
    return found
