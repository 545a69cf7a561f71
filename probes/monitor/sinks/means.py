"""What a dashboard shows of a measurement: one number per circuit, probe and layer, the mean over the heads."""

import pandas as pd

from probes.measuring.tables import mean_over_heads
from probes.monitor.sinks.missing import finite_rows


def means_by_tag(table: pd.DataFrame) -> dict[int, dict[str, float]]:
    """By step, "ov/effective_rank/layer 0" or "qk/marginalized_effective_rank k=4/layer 1", and the mean.

    Heads without a number are left out of the mean; where no head has one it is NaN.
    """
    found: dict[int, dict[str, float]] = {}
    means = mean_over_heads(finite_rows(table))
    columns = ("step", "circuit", "probe", "component", "layer", "value")
    for step, circuit, probe, component, layer, value in zip(*(means[name] for name in columns), strict=True):
        name = probe if pd.isna(component) else f"{probe} k={component}"
        found.setdefault(int(step), {})[f"{circuit}/{name}/layer {layer}"] = float(value)
    return found
