"""What is changed: a small whole example of every format, by file name within a folder. The same every time."""

import atexit
import io
import json
import shutil
import tempfile
import warnings
from argparse import Namespace
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgpack
import numpy as np
import pandas as pd
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save as save_safetensors

import checkpoints
import probes
from probes.measuring.tables import write_table
from tests.told import measurement, tell

Files = dict[str, bytes]

STATE = {
    "a.weight": torch.arange(12.0).reshape(3, 4),
    "a.turned": torch.arange(12.0).reshape(3, 4).T,
    "b": torch.arange(5, dtype=torch.int16),
    "c": torch.tensor(2.5, dtype=torch.bfloat16),
}
OWN = {name: tensor.contiguous() for name, tensor in STATE.items()}
ARRAYS = {name: tensor.numpy() for name, tensor in OWN.items() if name != "c"}
SQUARE = {"w": {"tensors": ["w"], "pattern": "r c -> 1 1 r c"}}


def torch_saved(content: object = None, **how) -> bytes:
    """A file of torch.save."""
    whole = {"model": STATE, "step": 3, "optimizer": {"state": {0: {"m": torch.ones(3)}}}, "args": Namespace(n_head=2)}
    buffer = io.BytesIO()
    torch.save(whole if content is None else content, buffer, **how)
    return buffer.getvalue()


def npz() -> bytes:
    """A file of numpy.savez."""
    buffer = io.BytesIO()
    np.savez(buffer, **ARRAYS)
    return buffer.getvalue()


def flax() -> bytes:
    """A message pack as flax writes it."""

    def packed(array):
        return msgpack.ExtType(1, msgpack.packb((array.shape, array.dtype.name, array.tobytes()), use_bin_type=True))

    return msgpack.packb({"params": ARRAYS, "step": 3}, default=packed, strict_types=True)


def as_files(write: Callable[[Path], object]) -> Files:
    """What a function writes into a folder."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(Path(folder))
        found = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def sharded() -> Files:
    """Two shards and their index."""
    names = {
        "model-00001-of-00002.safetensors": ["a.turned", "a.weight"],
        "model-00002-of-00002.safetensors": ["b", "c"],
    }
    files = {file: save_safetensors({name: OWN[name] for name in part}) for file, part in names.items()}
    index = {
        "metadata": {"total_size": 108},
        "weight_map": {name: file for file, part in names.items() for name in part},
    }
    return files | {"model.safetensors.index.json": json.dumps(index).encode()}


@cache
def distributed() -> Files:
    """A folder of torch.distributed.checkpoint."""
    return as_files(lambda folder: dcp.save({"model": STATE, "step": 3}, checkpoint_id=folder, no_dist=True))


def zero_three() -> Files:
    """DeepSpeed's ZeRO-3 of two processes: 12 + 6 values, and one frozen parameter."""
    files = {}
    for rank in range(2):
        model = {
            "module": {"table": torch.arange(2.0)},
            "buffer_names": ["table"],
            "param_shapes": [{"w": torch.Size([3, 4]), "v": torch.Size([6])}],
            "frozen_param_shapes": {"f": torch.Size([4])},
            "frozen_param_fragments": {"f": torch.arange(2.0) + 2 * rank},
            "global_steps": 5,
        }
        flat = torch.cat((torch.arange(6.0) + 6 * rank, torch.arange(3.0) + 3 * rank))
        optimizer = {"zero_stage": 3, "partition_count": 2, "fp32_flat_groups": [flat]}
        files[f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt"] = torch_saved(model)
        files[f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"] = torch_saved({"optimizer_state_dict": optimizer})
    return files


def by_layer() -> Files:
    """A file per layer and rank, as gpt-neox writes it."""
    return {
        f"layer_{layer:02d}-model_{rank:02d}-model_states.pt": torch_saved(
            {"attention.dense.weight": torch.arange(8.0).reshape(4, 2), "norm.weight": torch.ones(4)}
        )
        for layer in (2, 3)
        for rank in (0, 1)
    }


@cache
def run_directory() -> Files:
    """Our own run directory with what a monitor leaves in it."""

    def write(folder: Path) -> None:
        from probes.monitor.sinks import RunDirectory

        with checkpoints.RunWriter(folder / "run", {"width": 5}, seed=3, circuits=SQUARE) as writer:
            tell(RunDirectory(writer), range(25))
            for step in range(3):
                writer.save(step, {"w": torch.randn(5, 5, generator=torch.Generator().manual_seed(step))})
            writer.save_resume(2, {"x": torch.zeros(1)})

    return {name.removeprefix("run/"): content for name, content in as_files(write).items()}


@cache
def gpt2() -> tuple[bytes, bytes]:
    """The config and the weights of a small GPT-2."""
    from tests import small_gpt2

    config = {key: value for key, value in small_gpt2.CONFIG.to_dict().items() if value is not None}
    return json.dumps(config).encode(), save_safetensors(small_gpt2.state(0))


def trainer_output() -> Files:
    """What the Trainer of Transformers leaves."""
    config, weights = gpt2()
    history = [{"step": step, "loss": 1 / (step + 1), "epoch": step / 10, "learning_rate": 1e-3} for step in range(12)]
    files = {}
    for step in (5, 10):
        state = {"global_step": step, "epoch": 1.0, "log_history": history[:step], "best_metric": None}
        files |= {
            f"checkpoint-{step}/config.json": config,
            f"checkpoint-{step}/model.safetensors": weights,
            f"checkpoint-{step}/trainer_state.json": json.dumps(state).encode(),
        }
    return files


def table() -> pd.DataFrame:
    """Metrics of 30 steps."""
    steps = np.arange(30)
    return pd.DataFrame({"step": steps, "loss": 1 / (steps + 1), "lr": 1e-3 * steps, "note": "text"})


def metrics() -> Files:
    """Metrics in every format that people have."""
    rows = json.loads(table().to_json(orient="records"))
    export = table().rename(columns={"loss": "run 1 - loss", "step": "Step"}).drop(columns=["lr", "note"])
    export["run 1 - loss__MIN"] = export["run 1 - loss"]
    buffer = io.BytesIO()
    table().to_parquet(buffer)
    return {
        "metrics.csv": table().to_csv(index=False).encode(),
        "metrics.tsv": table().to_csv(index=False, sep="\t").encode(),
        "metrics.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode(),
        "rows.json": json.dumps(rows).encode(),
        "wandb_export.csv": export.to_csv(index=False).encode(),
        "metrics.parquet": buffer.getvalue(),
        "trainer_state.json": json.dumps({"global_step": 30, "log_history": rows}).encode(),
    }


@cache
def event_file() -> bytes:
    """An event file of TensorBoard: scalars of both kinds, and text."""

    def write(folder: Path) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        with SummaryWriter(str(folder)) as writer:
            for step in range(4):
                writer.add_scalar("loss", 1 / (step + 1), step)
                writer.add_scalar("lr", 0.5, step, new_style=True)
            writer.add_text("note", "text", 1)

    return next(iter(as_files(write).values()))


@cache
def measured_run() -> tuple[Path, pd.DataFrame]:
    """A run of three steps, kept until the process ends, and its table."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-run-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with checkpoints.RunWriter(folder / "run", circuits=SQUARE) as writer:
        for step in range(3):
            writer.save(step, {"w": torch.randn(5, 5, generator=torch.Generator().manual_seed(step))})
    return folder / "run", probes.measure(checkpoints.open_run(folder / "run"), probes="norm")


@cache
def partial_results() -> Files:
    """The folder of a measurement of that run which was stopped after all its steps."""
    run = checkpoints.open_run(measured_run()[0])
    return as_files(lambda folder: probes.measure(run, probes="norm", resume_dir=folder))


def probes_table() -> bytes:
    """A table that `probes measure` wrote."""

    def write(folder: Path) -> None:
        rows = pd.concat([measurement(step, float(step)) for step in range(12)], ignore_index=True)
        rows.attrs.update({"source": "x", "failed": {}, "steps": [*range(12)]})
        write_table(rows, folder / "table.parquet")

    return as_files(write)["table.parquet"]


@cache
def csv_sink() -> Files:
    """What the CSV sink of a monitor left."""

    def write(folder: Path) -> None:
        from probes.monitor.sinks import CSV

        sink = CSV(folder / "csv")
        tell(sink, range(25))
        sink.close()

    return as_files(write)


MONITORED = {"probes": ["norm"], "schedule": 50, "budget": 1.0, "checkpoints": False}
LOSSES = 3.0 - (np.arange(300) >= 150) + np.random.default_rng(0).normal(0, 0.02, 300)


@cache
def small_model() -> torch.nn.Module:
    """What it watches."""
    from tests import small_gpt2

    return small_gpt2.model()


@cache
def monitored_run() -> Files:
    """What a monitor leaves of 300 steps with a cliff in them."""

    def write(folder: Path) -> None:
        monitor = probes.Monitor(small_model(), run=folder, **MONITORED)
        for loss in LOSSES:
            monitor.step(loss=float(loss))
        monitor.break_off()

    return as_files(write)


COMMIT, BLOB = "1" * 40, "2" * 64
REFS = json.dumps({"tags": [], "branches": [{"name": f"step{n}", "targetCommit": COMMIT} for n in (1, 2)]}).encode()
TREE = json.dumps(
    [
        {"type": "file", "path": "config.json", "size": 90, "oid": COMMIT},
        {"type": "directory", "path": "x", "size": 0, "oid": COMMIT},
        {"type": "file", "path": "model.safetensors", "size": 900, "oid": COMMIT, "lfs": {"oid": BLOB, "size": 900}},
    ]
).encode()
INDEX = b'<html><a href="../">up</a><a href="step1/">1</a><a href="model.safetensors">m</a><a href="?C=N">n</a></html>'
LISTING = json.dumps([{"name": "step1", "type": "directory"}, {"name": "m.pt", "type": "file", "size": 3}]).encode()
