"""What makes data right: what the format's own library reads of the same bytes, or else what the file says."""

import csv
import io
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tests.fuzz import corpus


def same_tensors(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Whatever both have is equal, bit by bit."""
    for name, tensor in found.items():
        if name in expected:
            theirs = expected[name].detach()
            assert tensor.shape == theirs.shape, f"{name} is {tuple(tensor.shape)}, the library says {theirs.shape}"
            assert tensor.dtype == theirs.dtype, f"{name} is {tensor.dtype}, the library says {theirs.dtype}"
            raw = [one.contiguous().reshape(-1).view(torch.uint8) for one in (tensor, theirs) if one.numel()]
            assert not raw or torch.equal(*raw), f"{name} is not what the library reads"


def as_torch_reads(folder: Path, found: dict[str, torch.Tensor]) -> None:
    """Against torch.load, where torch takes the file at all."""
    try:
        content = torch.load(folder / "model.pt", weights_only=True)
    except Exception:
        return
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        same_tensors(found, {k: v for k, v in content["model"].items() if isinstance(v, torch.Tensor)})


def as_saved(folder: Path, found: dict[str, torch.Tensor]) -> None:
    """Against what was saved: nothing that was changed can have been read."""
    same_tensors(found, corpus.STATE)


def as_safetensors_reads(folder: Path, found: dict[str, torch.Tensor]) -> None:
    """Against the format's own library."""
    from safetensors.torch import load

    same_tensors(found, load((folder / "model.safetensors").read_bytes()))


def as_numpy_reads(folder: Path, found: dict[str, torch.Tensor]) -> None:
    """Against numpy.load, where numpy takes the file at all."""
    try:
        with np.load(folder / "model.npz") as arrays:
            theirs = {name: torch.from_numpy(np.ascontiguousarray(arrays[name])) for name in arrays.files}
    except Exception:
        return
    same_tensors(found, {name: tensor.reshape(found[name].shape) for name, tensor in theirs.items() if name in found})


def nothing_new(found: pd.DataFrame, rows: list[dict]) -> None:
    """Every number stands in the file, in a row of its step, under its name."""
    there: dict[tuple[float, str], set[float]] = {}
    for row in rows:
        values = {str(key): number(value) for key, value in row.items() if key is not None}
        steps = {value for key, value in values.items() if "step" in key.lower() or key.lower() in STEPS}
        for key, value in values.items():
            for step in steps:
                for name in (key, key.partition(" - ")[2]):  # W&B exports `run - metric`
                    there.setdefault((step, _plain(name)), set()).add(value)
    for name in map(str, found.columns):
        for step, value in zip(found.index.to_numpy(), found[name].to_numpy(), strict=True):
            if math.isfinite(value) and _plain(name) and not name.startswith("Unnamed"):
                known = there.get((float(step), _plain(name)), set())
                assert float(value) in known, f"{name!r} at step {step} is {value}; in the file it is {known}"


def _plain(name: str) -> str:
    """A name without what readers of tables drop from it."""
    return name.replace("\0", "").strip()


STEPS = ("iteration", "iter", "update", "batch")


def number(value: Any) -> float:
    """What a field says, as a number; NaN where it is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def json_rows(content: bytes) -> list[dict]:
    """Rows of a JSON list, or of what a Trainer keeps."""
    tree = json.loads(content)
    return tree if isinstance(tree, list) else tree["log_history"]


def json_lines(content: bytes) -> list[dict]:
    """Rows of JSON lines; what is none is left to the reader."""
    rows = []
    for line in content.decode("utf-8", "replace").split("\n"):
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return [row for row in rows if isinstance(row, dict)]


def csv_rows(content: bytes) -> list[dict] | None:
    """Rows of a table with fields between commas or tabs; nothing is said of lines that end in half."""
    if b"\r" in content:
        return None
    text = content.decode("utf-8", "replace").replace("\0", "")
    between = "\t" if "\t" in text.partition("\n")[0] else ","
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=between))  # lines end at \n and nowhere else
    names = [field.strip() for field in rows[0]] if rows else []
    if len({*names}) < len(names):  # which of two columns of one name is meant, a table cannot say
        return None
    return [dict(zip(names, row, strict=False)) for row in rows[1:]]


def event_rows(content: bytes) -> list[dict] | None:
    """Scalars as TensorBoard's own classes read the events."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.util.tensor_util import make_ndarray

    rows, at = [], 0
    while at + 16 <= len(content):
        (length,) = struct.unpack("<Q", content[at : at + 8])
        try:
            event = Event.FromString(content[at + 12 : at + 12 + length])
        except DecodeError:  # what TensorBoard does not take at all says nothing about what is in it
            return None
        for value in event.summary.value:
            if value.HasField("simple_value"):
                rows.append({"step": event.step, value.tag: value.simple_value})
            elif value.HasField("tensor"):
                try:
                    rows.append({"step": event.step, value.tag: make_ndarray(value.tensor).item()})
                except Exception:
                    continue
        at += 16 + length
    return rows


def whole_steps(folder: Path, found: Any) -> None:
    """What a Trainer records as a step is a whole number or nothing."""
    assert all(step is None or (type(step) is int and step >= 0) for step in found[1]), f"recorded steps {found[1]}"


def as_measured(folder: Path, found: pd.DataFrame) -> None:
    """Against the measurement that was not interrupted."""
    pd.testing.assert_frame_equal(found, corpus.measured_run()[1])


def told_once(folder: Path, found: pd.DataFrame) -> None:
    """What it was told is there, once."""
    later = found.loc[found["step"] >= 15]
    assert later["step"].to_list() == [*range(15, 30)], f"steps are {later['step'].to_list()}"


def measured_once(folder: Path, found: pd.DataFrame) -> None:
    """What it was told since is there, once, and nothing of later steps before."""
    later = found.loc[found["step"] >= 15]
    assert later["step"].to_list() == [20] * 3, f"steps are {later['step'].to_list()}"


def known_losses(folder: Path, found: pd.Series) -> None:
    """The losses of before are there, each as it was, and the two that came since."""
    assert np.array_equal(found.to_numpy(), [*corpus.LOSSES[:250], 2.0, 2.0])
