"""The weights of a small GPT-2, a different one for every step, and what its heads must be read as."""

import copy
import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

CONFIG = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=20, n_positions=8)


def model(step: int = 0):
    torch.manual_seed(step)
    return transformers.GPT2LMHeadModel(copy.deepcopy(CONFIG))  # trainers write into the config of a model


def state(step: int = 0) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model(step).state_dict().items() if name != "lm_head.weight"}


def query_of(step: int):
    return state(step)["transformer.h.1.attn.c_attn.weight"][:, :8]


def expect_heads(run, step: int) -> None:
    """The second layer's first query head, laid out by hand."""
    assert torch.equal(run.heads.read(run.checkpoint(step), 1).W_Q[0], query_of(step))


def sharded(folder: Path, tensors: dict, *, index: bool = True) -> dict:
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(tensors)
    parts = {f"model-0000{i + 1}-of-00003.safetensors": names[i::3] for i in range(3)}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    table = {"metadata": {"total_size": 1}, "weight_map": {name: file for file, part in parts.items() for name in part}}
    if index:
        (folder / "model.safetensors.index.json").write_text(json.dumps(table))
    (folder / "config.json").write_text(json.dumps(CONFIG.to_dict()))
    return table
