"""A small run of a GPT-2 shape on a random walk: quick to write, and an audit finds nothing in it."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

CONFIG = {"model_type": "gpt2", "n_head": 3, "n_embd": 24}
LAYERS, HEADS, WIDTH = 2, 3, 24


def write_run(path: Path, steps: list[int], seed: int = 0, *, config: dict | None = None) -> Path:
    """Checkpoints of a GPT-2 shape on a random walk, so that an audit finds nothing."""
    generator = torch.Generator().manual_seed(seed)
    path.mkdir(parents=True)
    tensors = {
        f"h.{layer}.attn.{name}.weight": torch.randn(WIDTH, columns, generator=generator)
        for layer in range(LAYERS)
        for name, columns in (("c_attn", 3 * WIDTH), ("c_proj", WIDTH))
    }
    for step in steps:
        tensors = {k: v + 0.3 * torch.randn(v.shape, generator=generator) for k, v in tensors.items()}
        save_file(tensors, path / f"step{step}.safetensors")
    (path / "config.json").write_text(json.dumps(config or CONFIG))
    return path


STEPS = [0, 100, 200, 300, 400, 500]
