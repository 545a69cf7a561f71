"""What happened in a run, when, in which heads, together with what: one row per event.

Every panel of the table (the heads of one circuit under one probe) and every metric is searched for itself
(`findings`); what happens at the same time is one event, named after its surest finding in the weights. With tables of
several runs, what all runs do at the same step although they learn at different ones is the schedule of the
checkpoints and is left out; with controls, what these do too is marked as shared (`controls`).
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from probes.events.controls import Tables, as_tables, compared, is_shared, schedule_steps
from probes.events.event_table import TELLING, Event, Search, as_event_table
from probes.events.findings import Finding, at_once, in_metrics, in_weights
from probes.events.panels import Panel, head_called, read_panels
from probes.threads import one_thread

Metrics = pd.DataFrame | Mapping[str, pd.DataFrame]

SEED = 0


def find_events(
    table: pd.DataFrame | Sequence[pd.DataFrame],
    metrics: Metrics | None = None,
    *,
    controls: Tables | None = None,
    alpha: float = 0.01,
) -> pd.DataFrame:
    """What happened, one row per event, ordered by run and step.

        events = probes.find_events(probes.measure(run), run.metrics)

    run, step       where it is fastest. low, high: the stretch in which it happens (more than half of the excess speed
                    is left; of a metric, the 95 % interval)
    kind            stage: it stays. dip, spike: it comes back at once. cliff and others: of a metric, as
                    `find_transitions` calls them
    direction       rise, fall, or mixed where heads go both ways
    circuit, probe, component   of the finding that the event is named after: the surest in heads, else in the other
                    matrices (circuit "matrices"), else in the metrics (circuit "metric", probe its name); with
                    controls, first what none of them shows
    members         the heads that take part, as "layer.head" (matrices as "embed", "mlp_in.3"), those that moved
                    fastest, each for itself, first; among them at most a tenth is expected to be wrong
    strength        change as a share of the range of the whole run, median over the members
    p_value         how often a panel in which nothing happens shows as much, anywhere
    q_value         the same among all panels that were searched, of which those count for it that show something at the
                    same time (Benjamini & Hochberg); metrics for themselves
    rests_on        the row of `probes.series.calibration` that says how often this is right on records like this one
    together_with   other probes and metrics that show something at the same time
    shared_with_controls   whether controls do the same: none of its metrics is the run's alone, and of all that takes
                    part half or less is. NA without controls
    headline        what sets the run apart: not shared, or, without controls, together with a metric

    table may hold several runs, or be several tables; metrics are then by the name of the run, that of a control too.
    Measured without more ado, tables hold the heads; what else there is (`run.matrices`) is searched where it was
    measured: `probes.measure(run, ["ov", "qk", "embed", "unembed", "mlp_in", "mlp_out"])`. Grokking shows there.
    Only what has q <= alpha is a row. The evidence is in the attrs, by `event`, the number of the row:

    attrs["findings"]    every probe and metric of every event, that which it is named after first: name, is_metric,
                         step, low, high, kind, direction, strength, p_value, q_value, rests_on, members; is_resolved
                         where the checkpoints show the curve without noise, so that p says little and no calibration
                         speaks of it; order: "before" or "after" the largest change of a metric in this event, or
                         "cannot be told" (the stretches overlap; over several seeds `lead_lag` can); and
                         shared_with_controls of each
    attrs["members"]     every head of every finding in the weights, taking part or not: circuit, probe, component,
                         tower, name, layer, head; statistic (how many times faster than usual), change (of ln(value)
                         where that was taken), p_value, q_value, takes_part
    attrs["furthest"]    of every event in the weights, all heads by how far their QK stable rank went between low and
                         high (the sum of |changes| of its ln), where that was measured: where attention-only models
                         begin to copy, those that match prefixes come first (see `rank_heads`)
    attrs["searched"]    by panel and metric, the stretches of steps that could be looked at; attrs["not_searched"] what
                         could not, with the reason; attrs["notes"] what was left out; attrs["tests"] by run the number
                         of panels and metrics, attrs["panels"] of panels; attrs["controls"] their names
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}: a rate between 0 and 1 is expected")
    runs, others = as_tables(table, "table"), as_tables(controls, "controls") if controls is not None else {}
    both = [name for name in runs if name in others]
    if both:
        raise ValueError(f"{', '.join(both)}: a run and a control have one name. Give each its own: table.assign(run=)")
    logged = _by_run(metrics, [*runs, *others], first=next(iter(runs)))
    with one_thread():
        searches = {name: _search(name, one, logged.get(name), alpha) for name, one in {**runs, **others}.items()}
    notes: list[str] = []
    found = {name: searches[name].events for name in runs}
    schedule, said = schedule_steps(
        {name: [e.findings for e in events] for name, events in found.items()},
        {panel: where for name in runs for panel, where in searches[name].searched.items()},
    )
    notes += said
    rows = []
    for name, events in found.items():
        for event in _without(events, schedule.get(name, set())):
            if others:
                ordered, also = compared(event.findings, [_all(searches[control].events) for control in others])
                shared = is_shared(ordered, also)
                rows.append(Event(tuple(ordered), shared, not shared, tuple(also)))
            else:
                rows.append(Event(event.findings, None, any(one.circuit is None for one in event.findings)))
    return as_event_table(rows, [searches[name] for name in runs], alpha, notes, list(others))


def _search(run: str, table: pd.DataFrame, metrics: pd.DataFrame | None, alpha: float) -> Search:
    panels, refused = read_panels(table)
    where = {panel.name: panel.searched for panel in panels}
    found = in_weights(panels, alpha=alpha, seed=SEED)
    if metrics is not None:
        more, where_too, refused_too = in_metrics(run, metrics, alpha=alpha)
        found, where, refused = found + more, {**where, **where_too}, {**refused, **refused_too}
    notes = _left_out(panels) + [
        f"{one.name} {one.direction}s at step {one.step:,.0f}, where the learning rate jumps: taken for that, no event"
        for one in found
        if one.q_value <= alpha and one.kind == "intervention"
    ]
    found = [one for one in found if one.q_value <= alpha and one.kind not in ("settled", "intervention")]
    telling = tuple(panel for panel in panels if f"{panel.circuit}.{panel.probe}" == TELLING)
    return Search(run, _joined(found), where, refused, notes, len(panels), telling)


def _left_out(panels: Sequence[Panel]) -> list[str]:
    """Heads and steps that panels do without, each note once, with the panels it is about."""
    notes: dict[str, list[str]] = {}
    for panel in panels:
        if panel.steps_left_out:
            count, reasons = sum(panel.steps_left_out.values()), list(panel.steps_left_out)
            more = f", and {len(reasons) - 1} other reasons" if len(reasons) > 1 else ""
            notes.setdefault(f"{count} checkpoints are left out ({reasons[0]}{more})", []).append(panel.name)
        by_reason: dict[str, list[str]] = {}
        for head, reason in panel.without.items():
            by_reason.setdefault(reason, []).append(head_called(head))
        for reason, heads in by_reason.items():
            said = f"{heads[0]} is" if len(heads) == 1 else f"{', '.join(heads)} are"
            notes.setdefault(f"{said} left out ({reason})", []).append(panel.name)
        for head, other in panel.same_as.items():
            notes.setdefault(f"{head_called(head)} has the numbers of {other}", []).append(panel.name)
    said = []
    for note, names in notes.items():
        of = "all panels" if len(names) == len(panels) else ", ".join(names[:3]) + " ..." * (len(names) > 3)
        said.append(f"{note}: {of}")
    return said


def _joined(findings: list[Finding]) -> list[Event]:
    """Findings at the same time as one event: the surest in heads takes what overlaps it, then the next."""
    left = sorted(findings, key=lambda one: one.rank)
    events = []
    while left:
        first = left[0]
        near = [one for one in left if one is first or at_once(first, one)]
        events.append(Event(tuple(near)))
        left = [one for one in left if all(one is not other for other in near)]
    return sorted(events, key=lambda event: event.named_after.step)


def _all(events: Sequence[Event]) -> list[Finding]:
    return [one for event in events for one in event.findings]


def _without(events: list[Event], schedule: set[tuple[str, float]]) -> list[Event]:
    """Events without the findings that are the schedule's."""
    kept = []
    for event in events:
        left = tuple(one for one in event.findings if (one.name, one.step) not in schedule)
        if left:
            kept.append(Event(left))
    return kept


def _by_run(metrics: Metrics | None, names: list[str], first: str) -> dict[str, pd.DataFrame]:
    if metrics is None:
        return {}
    if isinstance(metrics, pd.DataFrame):
        return {first: metrics}
    unknown = [name for name in metrics if name not in names]
    if unknown:
        raise ValueError(f"metrics of {', '.join(unknown)}: the tables have the runs {', '.join(names)}")
    return dict(metrics)
