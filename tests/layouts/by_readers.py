"""Layouts that are neither torch.save's nor safetensors': torch.distributed.checkpoint, NumPy's arrays, flax."""

import json
import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import msgpack
import numpy as np
import torch
import torch.distributed.checkpoint as dcp

from tests.layouts.layout import BY_HAND, Layout, State, config_into, weights


def distributed(pattern: str, wrap: Callable[[State], dict]) -> Callable[[Path], Mapping[int, State]]:
    """Folders of torch.distributed.checkpoint, saved by one process."""

    def save(folder: Path) -> Mapping[int, State]:
        logging.getLogger("torch.distributed.checkpoint").setLevel(logging.ERROR)
        for step in (10, 20):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dcp.save(wrap(weights(step)), checkpoint_id=folder / pattern.format(step), no_dist=True)
        return {step: weights(step) for step in (10, 20)}

    return save


def trained(state: State) -> dict:
    """What torchtitan hands over: the model under its own names, and the rest."""
    return {**state, "optimizer": {"state": {"x": torch.zeros(3)}}, "train_state": {"step": torch.tensor(1)}}


def olmo_core(folder: Path) -> Mapping[int, State]:
    truth = distributed("step{}/model_and_optim", lambda s: {"model": s, "optim": {"state": torch.zeros(3)}})(folder)
    for step in truth:
        (folder / f"step{step}" / "train").mkdir()
        torch.save({"global_step": step}, folder / f"step{step}" / "train" / "rank0.pt")
        (folder / f"step{step}" / ".metadata.json").write_text(json.dumps({"version": "1.0"}))
        config_into(folder / f"step{step}")
    return truth


def arrays(folder: Path) -> Mapping[int, State]:
    for step in (10, 20):
        np.savez(folder / f"step_{step}.npz", **{name: tensor.numpy() for name, tensor in weights(step).items()})
    return {step: weights(step) for step in (10, 20)}


def flax(folder: Path) -> Mapping[int, State]:
    """flax.serialization: tables within each other; an array is extension 1 with shape, dtype and bytes."""
    for step in (10, 20):
        tree: dict = {}
        for name, tensor in weights(step).items():
            *above, last = name.split(".")
            table = tree
            for key in above:
                table = table.setdefault(key, {})
            packed = msgpack.packb((tensor.shape, "float32", tensor.numpy().tobytes()), use_bin_type=True)
            table[last] = msgpack.ExtType(1, packed)
        place = folder / f"step-{step}"
        config_into(place)
        (place / "flax_model.msgpack").write_bytes(msgpack.packb(tree, use_bin_type=True))
    return {step: weights(step) for step in (10, 20)}


ALONE = {"config": {}}
DCP = "torch.distributed.checkpoint"
LAYOUTS = [
    Layout("step-10/.metadata, __0_0.distcp", DCP, distributed("step-{}", dict)),
    Layout(
        "checkpoint/step-10/, the optimizer within",
        f"{DCP}, as torchtitan calls it",
        distributed("checkpoint/step-{}", trained),
    ),
    Layout(
        "checkpoint_10/pytorch_model_fsdp_0/",
        f"{DCP}, as accelerate calls it",
        distributed("checkpoint_{}/pytorch_model_fsdp_0", lambda state: {"model": state}),
        "number",
    ),
    Layout("step10/model_and_optim/", f"{DCP}, as OLMo-core calls it", olmo_core, opening=ALONE),
    Layout("step_10.npz", "numpy.savez", arrays),
    Layout("step-10/flax_model.msgpack", BY_HAND.format("flax"), flax, opening=ALONE),
]
