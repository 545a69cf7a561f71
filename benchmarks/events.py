"""How often find_events is right: `python -m benchmarks.events [panels [COUNT [SCHEDULE...]]|speed]`.

panels   144 heads in which nothing happens in four ways, and in which some move: false alarms, events found, heads
         named; on seeds used for nothing else (200 panels each take two hours; --panels 20 some minutes)
speed    150 checkpoints x 288 heads x 8 probes on one core

What is said of heads and steps beside a real event: `python -m benchmarks.beside`.
"""

import sys
import time
from collections.abc import Sequence

import numpy as np
import pandas as pd

import probes
from probes.events.planted import KINDS, SCHEDULES, planted_panel

PANELS = 20
SEED = 7919
PLANTED = ((0.3, 2.0), (0.3, 3.0), (0.05, 4.0), (0.05, 6.0), (1.0, 2.0))
"""Share of the heads that move, and by how many standard deviations of their noise."""


def run() -> None:
    """Print level and power on panels, and the time a large table takes."""
    panels(PANELS)
    print()
    speed()


def panels(count: int, schedules: Sequence[str] = tuple(SCHEDULES)) -> None:
    """False alarms at alpha = .01 by kind, rho and schedule, and what is found of planted bursts."""
    print(f"find_events, 144 heads, alpha .01, {count} panels each: how many with a false alarm")
    for schedule in schedules:
        for rho in (0.6, 0.9):
            alarms = {kind: _alarms(kind, SCHEDULES[schedule], rho, count) for kind in KINDS}
            print(f"  {schedule:36s} rho {rho}: " + ", ".join(f"{k} {v}" for k, v in alarms.items()), flush=True)
    print("Planted bursts, rho .6: found at the right place; of the heads named, false; of those that moved, named")
    for schedule in schedules:
        for share, height in PLANTED:
            said = _power(SCHEDULES[schedule], share, height, max(count // 2, 10))
            print(f"  {schedule:36s} {100 * share:3.0f} % by {height:.0f} sd: {said}", flush=True)


def _alarms(kind: str, steps: np.ndarray, rho: float, count: int) -> int:
    drawn = (planted_panel(kind, steps, rho=rho, seed=[SEED, s]) for s in range(count))
    return sum(len(probes.find_events(one.table)) > 0 for one in drawn)


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


if __name__ == "__main__":
    what = sys.argv[1:]
    if not what or what[0] == "panels":
        panels(int(what[1]) if len(what) > 1 else PANELS, what[2:] or tuple(SCHEDULES))
    else:
        speed()
