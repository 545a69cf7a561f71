"""A GPT-NeoX as people publish it, with far more outside attention than in it: shards with an index, or torch files."""

import io
import json

import torch
import transformers
from safetensors.torch import save

CONFIG = transformers.GPTNeoXConfig(
    num_hidden_layers=3, hidden_size=96, num_attention_heads=4, intermediate_size=384, vocab_size=400
)


def tensors_at(step: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(step)
    return {name: tensor.clone() for name, tensor in transformers.GPTNeoXForCausalLM(CONFIG).state_dict().items()}


def torch_saved(content) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def revision(step: int, kind: str = "safetensors") -> dict[str, bytes]:
    """The files of one step, in two shards; kind is "safetensors" or "bin"."""
    tensors = tensors_at(step)
    names = list(tensors)
    stem = "model" if kind == "safetensors" else "pytorch_model"
    shards = {
        f"{stem}-00001-of-00002.{kind}": names[: len(names) // 2],
        f"{stem}-00002-of-00002.{kind}": names[len(names) // 2 :],
    }
    index = {"metadata": {}, "weight_map": {name: file for file, part in shards.items() for name in part}}
    write = save if kind == "safetensors" else torch_saved
    return {
        "config.json": json.dumps(CONFIG.to_dict()).encode(),
        f"{stem}.{kind}.index.json": json.dumps(index).encode(),
        **{file: write({name: tensors[name] for name in part}) for file, part in shards.items()},
    }


def attention_bytes(run) -> int:
    names = {name for layer in run.heads.layers for name in run.heads.names(layer)}
    return sum(run.checkpoint(step).stored[name].bytes for step in run.steps for name in names)


def read_everything(run) -> dict:
    found = {}
    for step in run.steps:
        checkpoint = run.checkpoint(step)
        run.heads.prefetch(checkpoint)
        for layer in run.heads.layers:
            found[step, layer] = run.heads.read(checkpoint, layer)
    return found


def expect(found) -> None:
    """Every layer's third key head, laid out by hand."""
    assert found
    for step in {step for step, _ in found}:
        tensors = tensors_at(step)
        for layer in range(3):
            fused = tensors[f"gpt_neox.layers.{layer}.attention.query_key_value.weight"]
            assert torch.equal(found[step, layer].W_K[2], fused.reshape(4, 3, 24, 96)[2, 1].T)
