"""What is killed: writers of runs, the commands, and every sink that goes on where it stopped."""

import json
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from checkpoints import RunWriter, open_run
from checkpoints.layout import write_text
from tests.kills.campaign import Campaign, files_in
from tests.told import EVENT, accumulated, measurement

STEPS = 60


# writers of runs


def write_run(folder: Path) -> None:
    """A training of sixty steps that saves, logs and can be taken up every few."""
    with RunWriter(folder / "run", {"a": 1}, resume=True) as writer:
        first = max(writer.resume_steps(), default=-1)
        weights = writer.resume_state(first)["w"] if first >= 0 else torch.zeros(40, 40)
        writer.go_back(first)
        for step in range(max(first, 0), STEPS + 1):
            if step % 3 == 0:
                writer.save(step, {"w": weights})
            if step % 5 == 0:
                writer.save_resume(step, {"w": weights})
            if step < STEPS:
                writer.log(step, loss=float(weights.sum()))
                weights = weights + torch.randn(40, 40, generator=torch.Generator().manual_seed(step))


def whole_files(folder: Path) -> None:
    """Whatever is visible after a kill is whole."""
    if (folder / "run" / "run.json").exists():
        run = open_run(folder / "run")
        assert all(torch.isfinite(run.checkpoint(step)["w"]).all() for step in run.steps)
        assert run.metrics.index.is_unique


def train_model(folder: Path) -> None:
    """`python -m models linear-icl`, in a preset of its own that takes a second."""
    from models.__main__ import app
    from models.linear_icl.model import LinearICL, LinearICLConfig
    from models.linear_icl.presets import PRESETS
    from models.presets import Preset

    small = LinearICLConfig(batch=8, tasks=16)
    PRESETS["tiny"] = Preset(lambda seeds: LinearICL(small, seeds), 400, 20, "a second", "none")
    app(["linear-icl", "--preset", "tiny", "--seed", "0-1", "--out", str(folder)], standalone_mode=False)


# commands


@cache
def a_run() -> Path:
    """A run of twelve checkpoints with attention heads, for the commands."""
    from tests.walking_run import write_run as write_walk

    return write_walk(Path(tempfile.mkdtemp(prefix="kills-")) / "walk", [*range(0, 240, 10)])


@cache
def an_own_run() -> Path:
    """A run directory with a loss."""
    circuits = {"w": {"tensors": ["w"], "pattern": "r c -> 1 1 r c"}}
    folder = Path(tempfile.mkdtemp(prefix="kills-")) / "own"
    with RunWriter(folder, circuits=circuits) as writer:
        weights = torch.zeros(6, 6)
        for step in range(200):
            noise = torch.randn(6, 6, generator=torch.Generator().manual_seed(step))
            weights = weights + 0.1 * noise + (torch.eye(6) if 90 < step < 110 else 0)
            writer.log(step, loss=1.0 / (1 + (step > 100)) + 0.01 * float(noise[0, 0]))
            if step % 10 == 0:
                writer.save(step, {"w": weights})
    return folder


def command(*arguments: str) -> Callable[[Path], None]:
    """A command of `probes` on that run; OUT is the folder."""

    def work(folder: Path) -> None:
        from probes.__main__ import app

        try:
            app([argument.replace("OUT", str(folder)) for argument in arguments], standalone_mode=True)
        except SystemExit as end:
            if end.code not in (0, 1):  # 1: something was found
                raise

    return work


def page(folder: Path) -> Any:
    """A report without what says when and where it was made."""
    import re

    text = (folder / "report.html").read_text(encoding="utf-8").replace(str(folder), "OUT")
    return re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?|killed-\d+|whole", "", text)


# sinks


def told(sink_in: Callable[[Path, int], Any], *, settles: float = 0.0) -> Callable[[Path], None]:
    """A run that tells a sink its numbers and is taken up, after a kill, where its last checkpoint was.

    settles: so many seconds before a checkpoint nothing was told, for a sink of which other programs write the file.
    """

    def work(folder: Path) -> None:
        kept = folder / "checkpoint.json"
        first = json.loads(kept.read_text())["step"] if kept.exists() else 0
        sink, close = sink_in(folder, first)
        for step in range(first, STEPS):
            if step % 7 == 0:
                sink.flush()
                time.sleep(settles)
                write_text(kept, json.dumps({"step": step}))
            sink.scalars(step, {"loss": 1.0 / (step + 1)})
            if step % 10 == 0:
                sink.rows(measurement(step, float(step)))
            if step == EVENT.detected_at:
                sink.event(EVENT)
        sink.close()
        close()

    return work


def csv_sink(folder: Path, first: int) -> Any:
    """Three CSV files."""
    from probes.monitor.sinks import CSV

    return CSV(folder / "csv", resume=True), lambda: None


def run_sink(folder: Path, first: int) -> Any:
    """Beside a run directory, whose writer goes back with it."""
    from probes.monitor.sinks import RunDirectory

    writer = RunWriter(folder / "run", resume=True)
    writer.go_back(first)
    return RunDirectory(writer), writer.close


def parquet_sink(folder: Path, first: int) -> Any:
    """One parquet file."""
    from probes.monitor.sinks import Parquet

    return Parquet(folder / "t.parquet", resume=True), lambda: None


def board_sink(folder: Path, first: int) -> Any:
    """Event files of TensorBoard."""
    from probes.monitor.sinks import TensorBoard

    return TensorBoard(folder / "board", resume=True), lambda: None


def shown(folder: Path) -> Any:
    """What TensorBoard shows of a folder."""
    events = accumulated(folder / "board")
    tags = events.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


def wandb_sink(folder: Path, first: int) -> Any:
    """An offline run of W&B that is taken up under its id.

    What is logged waits in W&B's own service, which ends with the process that is killed: 15 s, a tenth of one here.
    """
    import wandb

    from probes.monitor.sinks import WandB

    settings = wandb.Settings(
        silent=True, console="off", x_disable_stats=True, x_disable_meta=True, x_transaction_log_flush_interval=0.1
    )
    sink = WandB("kills", dir=str(folder), id="killed", resume="allow", mode="offline", settings=settings)
    return sink, wandb.teardown


def synced(folder: Path) -> Any:
    """What W&B has of a run after all its pieces were sent, in the order in which they were begun: the last word."""
    from tests.wandb_file import history

    found: dict[str, dict[int, float]] = {}
    for file in sorted(folder.rglob("*.wandb"), key=lambda file: file.parent.name):
        for row in history(file):
            step = row.pop("step")
            for name, value in row.items():
                found.setdefault(name, {})[step] = value
    return {name: sorted(values.items()) for name, values in found.items()}


def all_files(folder: Path) -> Any:
    """All that was written, but the states that training goes on from."""
    return files_in(folder, without=("resume-", "checkpoint.json", ".checkpoint.json"))


CAMPAIGNS: dict[str, Campaign] = {
    "RunWriter": Campaign(write_run, all_files, whole_files),
    "python -m models": Campaign(train_model, all_files),
    "probes measure": Campaign(lambda f: command("measure", str(a_run()), "-o", "OUT/t.parquet")(f), all_files),
    "probes audit": Campaign(lambda f: command("audit", str(a_run()), "-o", "OUT/verdicts.csv")(f), all_files),
    "probes report": Campaign(
        lambda f: command("report", str(an_own_run()), "-o", "OUT/report.html", "--tables", "OUT/tables")(f), page
    ),
    "sink CSV": Campaign(told(csv_sink), all_files),
    "sink RunDirectory": Campaign(told(run_sink), all_files),
    "sink Parquet": Campaign(told(parquet_sink), all_files),
    "sink TensorBoard": Campaign(told(board_sink), shown),
    "sink WandB": Campaign(told(wandb_sink, settles=0.5), synced),
}
