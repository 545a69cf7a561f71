"""Is there an event where a behaviour emerges, with the right heads? `python -m benchmarks.emergence FOLDER [TABLES]`.

FOLDER holds runs of `python -m models attention-only` (2, 3 and 4 layers; controls: 1 layer) and `modular-addition`
(controls: random labels, no weight decay), any seeds. They are measured once; TABLES (default FOLDER/tables) keeps the
tables. One line per seed:

    emerges   steps at which the behaviour has a tenth, half and nine tenths of its final value (accuracy on repeated
              tokens), or half, three quarters and 99 % (test accuracy: a tenth of it comes with the training loss)
    event     the event in the weights whose stretch overlaps that from first to last, the nearest to it; of several
              inside, that of most probes
    heads     that take part in it, in its order; ranked: by `rank_heads` over its stretch; furthest: by how far their
              QK stable rank went there, as `find_events` tells it
    matching  heads whose prefix-matching score, as the run itself logged it, ends above .3, the highest first. It is
              the run's own word, not an independent judge. Modular addition has no such score
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import checkpoints
import probes
from probes.events.command import Given, events_of

GROUPS = {
    "attention-only-quick": ["attention-only-1-layer"],
    "attention-only-3-layers": ["attention-only-1-layer"],
    "attention-only-4-layers": ["attention-only-1-layer"],
    "modular-addition-quick": ["modular-addition-random-labels", "modular-addition-no-weight-decay"],
}
"""Runs and their controls."""

BEHAVIOURS = {"accuracy_repeated": (0.1, 0.5, 0.9), "test_accuracy": (0.5, 0.75, 0.99)}
MATCHING = "prefix_matching."


def emergence(metrics: pd.DataFrame) -> tuple[float, list[int]]:
    """The final value of the behaviour, and the steps at which its shares (`BEHAVIOURS`) are there."""
    behaviour = next(name for name in BEHAVIOURS if name in metrics.columns)
    smooth = pd.Series(pd.Series(metrics[behaviour]).dropna().rolling(25, center=True, min_periods=1).mean())
    final = float(smooth.iloc[-1])
    steps = smooth.index.to_numpy()
    return final, [int(steps[int(np.argmax(smooth.to_numpy() > share * final))]) for share in BEHAVIOURS[behaviour]]


def matching(metrics: pd.DataFrame) -> list[str]:
    """Heads that match prefixes at the end, as "layer.head"."""
    scores = metrics.filter(like=MATCHING).dropna().iloc[-10:].mean().sort_values(ascending=False)
    return [str(name).removeprefix(MATCHING) for name in scores.index[scores > 0.3]]


def finished(folder: Path, prefix: str) -> list[Path]:
    """Runs of this kind that have been trained to the end of those beside them."""
    found = [path for path in sorted(folder.glob(f"{prefix}-seed*")) if path.is_dir()]
    last = {path: max(checkpoints.open_run(path).steps, default=0) for path in found}
    return [path for path in found if last[path] == max(last.values())]


def group(folder: Path, tables: Path, kind: str) -> None:
    """All seeds of one kind, with their controls."""
    runs, controls = finished(folder, kind), [one for prefix in GROUPS[kind] for one in finished(folder, prefix)]
    if not runs:
        return
    given = Given(checkpoints.open_run, tables, progress=False)
    events, apart = events_of([str(p) for p in runs], [str(p) for p in controls], given, alpha=0.01)
    findings = events.attrs["findings"]
    print(f"{kind}: {len(runs)} runs, {len(controls)} controls")
    for path in runs:
        run = checkpoints.open_run(path)
        table = probes.read_table(tables / f"{run.name}.parquet")
        final, (first_step, middle, last_step) = emergence(run.metrics)
        rows = events.loc[(events["run"] == run.name) & (events["circuit"] != "metric")]
        there = rows.loc[(rows["low"] <= last_step) & (rows["high"] >= first_step)]
        said = f"  seed {path.name.rsplit('seed')[-1]:>2}: {final:.2f}, emerges {first_step}, {middle}, {last_step}; "
        if there.empty:
            print(said + "NO EVENT in the weights there")
            continue
        away = np.abs(np.log(there["step"] / there["step"].clip(first_step, last_step))).round(3)
        row = there.loc[(away - 1e-6 * there["together_with"].map(len)).idxmin()]
        probes_of_it = findings.loc[(findings["event"] == row.name) & ~findings["is_metric"]]
        own = probes_of_it.loc[~probes_of_it["shared_with_controls"].astype(bool), "name"]
        said += f"event {row['step']:.0f} ({row['low']:.0f}-{row['high']:.0f}) of {len(probes_of_it)} probes, "
        said += f"{len(own)} not in controls, {'headline' if row['headline'] else 'shared'}; named after "
        said += f"{row['circuit']}.{row['probe']}; heads {' '.join(row['members'])}; ranked "
        heads = probes.rank_heads(table.loc[table["circuit"].isin(["ov", "qk"])], (row["low"], row["high"]))
        names = [f"{layer}.{head}" for layer, head in zip(heads["layer"], heads["head"], strict=True)]
        furthest = events.attrs["furthest"]
        going = furthest.loc[furthest["event"] == row.name, "name"].tolist()
        said += f"{' '.join(names)}; furthest {' '.join(going)}"
        who = matching(run.metrics)
        if who:
            orders = {"heads": row["members"], "ranked": names, "furthest": going}
            first = [by for by, order in orders.items() if set(order[: len(who)]) == set(who)]
            said += f"; matching {' '.join(who)}: first in {' and '.join(first) or 'none'}"
        print(said)
    for note in events.attrs["notes"]:
        if "not reported" in note:
            print(f"  {note}")
    if apart is not None:
        top = apart.iloc[0]
        print(
            f"  set apart best by {top['panel']}: {top['times']:.2g} times as fast ({top['low']:.2g}-{top['high']:.2g})"
            f", p {top['p_value']:.2g}, in some panel {top['p_any']:.2g}"
        )


if __name__ == "__main__":
    home = Path(sys.argv[1])
    for name in GROUPS:
        group(home, Path(sys.argv[2]) if len(sys.argv) > 2 else home / "tables", name)
