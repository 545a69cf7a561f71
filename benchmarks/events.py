"""How often find_events is right: `python -m benchmarks.events [panels|speed|RUN...]`.

panels   144 heads in which nothing happens in four ways, and in which some move: false alarms, events found, heads
         named; on seeds used for nothing else (200 panels each take two hours; --panels 20 some minutes)
speed    150 checkpoints x 288 heads x 8 probes on one core
RUN...   runs of `python -m models attention-only` or `modular-addition`: is there an event where the behaviour
         emerges, and are the heads that match prefixes ranked first?
"""

import sys
import time

import numpy as np
import pandas as pd

import checkpoints
import probes
from probes.events.planted import KINDS, SCHEDULES, planted_panel

PANELS = 20
SEED = 2041
PLANTED = ((0.3, 3.0), (0.05, 6.0), (1.0, 2.0))
"""Share of the heads that move, and by how many standard deviations of their noise."""

EMERGENCE = {"accuracy_repeated": "prefix_matching", "test_accuracy": None}
"""What a behaviour is measured by, and the scores of heads that say who took part."""

NEAR = 0.2
"""In ln(step): an event this near to emergence is one at emergence."""


def run() -> None:
    """Print level and power on panels, and the time a large table takes."""
    panels(PANELS)
    print()
    speed()


def panels(count: int) -> None:
    """False alarms at alpha = .01 by kind, rho and schedule, and what is found of planted bursts."""
    print(f"find_events, 144 heads, alpha .01, {count} panels each: share with a false alarm")
    for schedule, steps in SCHEDULES.items():
        for rho in (0.6, 0.9):
            alarms = {
                kind: np.mean(
                    [
                        len(probes.find_events(planted_panel(kind, steps, rho=rho, seed=[SEED, s]).table)) > 0
                        for s in range(count)
                    ]
                )
                for kind in KINDS
            }
            print(f"  {schedule:36s} rho {rho}: " + ", ".join(f"{k} {v:.3f}" for k, v in alarms.items()), flush=True)
    print("Planted bursts, rho .6: found at the right place; of the heads named, false; of those that moved, named")
    for schedule, steps in SCHEDULES.items():
        for share, height in PLANTED:
            print(
                f"  {schedule:36s} {100 * share:3.0f} % by {height:.0f} sd: {_power(steps, share, height, count)}",
                flush=True,
            )


def _power(steps: np.ndarray, share: float, height: float, count: int) -> str:
    found, false, named = [], [], []
    for s in range(count):
        planted = planted_panel(steps=steps, share=share, height=height, seed=[SEED + 1, s])
        events = probes.find_events(planted.table)
        near = events.loc[np.abs(np.log(events["step"] / planted.step)) < 0.35]
        found.append(len(near) > 0)
        if len(near):
            members = {tuple(int(part) for part in name.split(".")) for name in near["members"].iloc[0]}
            false.append(len(members - planted.movers) / max(len(members), 1))
            named.append(len(members & planted.movers) / len(planted.movers))
    said = f", false {np.mean(false):.2f}, named {np.mean(named):.2f}" if false else ""
    return f"found {np.mean(found):.2f}{said}"


def speed() -> None:
    """One core."""
    steps = SCHEDULES["uniform 150"]
    tables = [
        planted_panel(steps=steps, layers=24, heads=12, seed=k).table.assign(probe=f"probe {k}") for k in range(8)
    ]
    table = pd.concat(tables, ignore_index=True)
    wall, core = time.perf_counter(), time.process_time()
    probes.find_events(table)
    print(
        f"find_events, 150 checkpoints x 288 heads x 8 probes: {time.process_time() - core:.0f} s of one core "
        f"({time.perf_counter() - wall:.0f} s passed)"
    )


def emergence(path: str) -> None:
    """One run: when its behaviour emerges, the event there, its heads, and those that match prefixes."""
    run = checkpoints.open_run(path)
    metrics, table = run.metrics, probes.measure(run)
    behaviour = next(name for name in EMERGENCE if name in metrics.columns)
    known = pd.Series(metrics[behaviour]).dropna()
    smooth = pd.Series(known.rolling(25, center=True, min_periods=1).mean())
    top = float(smooth.iloc[-1])
    step = int(smooth.index.to_numpy()[int(np.argmax(smooth.to_numpy() > top / 2))])
    logged = metrics.loc[:, [name for name in metrics.columns if not str(name)[-1].isdigit()]]
    events = probes.find_events(table, logged)
    there = events.loc[np.abs(np.log(events["step"] / max(step, 1))) < NEAR]
    print(f"{run.name}: {behaviour} ends at {top:.2f}, half of that at step {step}")
    for row in there.to_dict("records"):
        where = f"{row['step']:.0f} ({row['low']:.0f}-{row['high']:.0f}) {row['circuit']} {row['probe']}"
        print(f"  {where}: {', '.join(row['members']) or 'no heads'}; q {row['q_value']:.1g}")
    if there.empty:
        print("  no event there")
    prefix = EMERGENCE[behaviour]
    if prefix and top > 0.5:
        scores = metrics.filter(like=prefix).dropna().iloc[-10:].mean().sort_values(ascending=False)
        ranked = probes.rank_heads(table, (step * np.exp(-NEAR), step * np.exp(NEAR)))
        names = [f"{layer}.{head}" for layer, head in zip(ranked["layer"], ranked["head"], strict=True)]
        matching = [str(name).removeprefix(f"{prefix}.") for name in scores.index[scores > 0.3]]
        print(f"  match prefixes: {', '.join(matching)}; ranked by change: {', '.join(names)}")


if __name__ == "__main__":
    what = sys.argv[1:]
    if not what or what[0] == "panels":
        panels(int(what[1]) if len(what) > 1 else PANELS)
    elif what[0] == "speed":
        speed()
    else:
        for one in what:
            emergence(one)
