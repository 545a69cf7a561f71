"""Real little training runs, twenty different healthy ones, as series of checkpoints to audit and to break."""

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from checkpoints import schedules

Series = dict[int, dict[str, Tensor]]

EVEN, LOG, PYTHIA = (
    schedules.every(20, 300),
    schedules.log_spaced(300, 25),
    [s for s in schedules.pythia(2000) if s <= 300],
)
MIXED = [0, *range(10, 100, 10), *range(100, 301, 50)]


def adam(parameters, **settings):
    return torch.optim.AdamW(parameters, **settings)


def sgd(parameters, **settings):
    return torch.optim.SGD(parameters, **settings)


# optimizer, its settings, when to save, dtype of the saved weights, shape of the learning rate, frozen parts
SETTINGS: list[tuple[Callable, dict, list[int], torch.dtype, str, tuple[str, ...]]] = [
    (adam, {"lr": 3e-3}, EVEN, torch.float32, "constant", ()),
    (adam, {"lr": 3e-3}, LOG, torch.float32, "constant", ()),
    (adam, {"lr": 3e-3}, PYTHIA, torch.float32, "constant", ()),
    (adam, {"lr": 3e-3}, MIXED, torch.float32, "constant", ()),
    (adam, {"lr": 1e-2, "weight_decay": 1.0}, EVEN, torch.float32, "constant", ()),
    (adam, {"lr": 1e-2, "weight_decay": 1.0}, LOG, torch.float32, "cosine", ()),
    (adam, {"lr": 3e-3}, PYTHIA, torch.float32, "warm-up", ()),
    (adam, {"lr": 3e-3}, EVEN, torch.float32, "cosine", ()),
    (adam, {"lr": 3e-3, "betas": (0.9, 0.95)}, EVEN, torch.bfloat16, "constant", ()),
    (adam, {"lr": 1e-3}, LOG, torch.bfloat16, "cosine", ()),
    (adam, {"lr": 3e-2}, EVEN, torch.float32, "constant", ()),  # bounces about its minimum
    (adam, {"lr": 3e-2}, LOG, torch.float16, "warm-up", ()),
    (sgd, {"lr": 0.1}, EVEN, torch.float32, "constant", ()),
    (sgd, {"lr": 0.1}, LOG, torch.float32, "constant", ()),
    (sgd, {"lr": 0.1, "momentum": 0.9}, EVEN, torch.float32, "constant", ()),
    (sgd, {"lr": 0.1, "momentum": 0.9}, PYTHIA, torch.float32, "cosine", ()),
    (sgd, {"lr": 0.1, "weight_decay": 0.1}, MIXED, torch.float32, "cosine", ()),
    (adam, {"lr": 3e-3}, EVEN, torch.float32, "constant", ("embed.weight",)),
    (adam, {"lr": 3e-3}, LOG, torch.float32, "constant", ("layers.1.weight", "layers.1.bias")),
    (adam, {"lr": 1e-4}, EVEN, torch.bfloat16, "constant", ()),  # hardly moves beyond rounding
]


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 24)
        self.layers = nn.ModuleList([nn.Linear(24, 24) for _ in range(3)])
        self.norm = nn.LayerNorm(24)
        self.head = nn.Linear(24, 40, bias=False)
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("mask", torch.ones(8, 8).tril())

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + torch.relu(layer(self.norm(x)))
        return self.head(x) * self.scale


@cache
def healthy(number: int) -> Series:
    """Numbers 0 to 19 are the twenty; later ones are the same settings with other seeds."""
    make, settings, steps, dtype, shape, frozen = SETTINGS[number % len(SETTINGS)]
    torch.manual_seed(number)
    model = Small()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
    optimizer = make([p for p in model.parameters() if p.requires_grad], **settings)
    follows = torch.randperm(40)
    series: Series = {}
    for step in range(steps[-1] + 1):
        if step in steps:
            series[step] = {k: v.detach().to(dtype).clone() for k, v in model.state_dict().items()}
        for group in optimizer.param_groups:
            group["lr"] = settings["lr"] * rate(shape, step / steps[-1], step)
        tokens = torch.randint(0, 40, (16,))
        noisy = torch.where(torch.rand(16) < 0.1, torch.randint(0, 40, (16,)), follows[tokens])
        loss = nn.functional.cross_entropy(model(tokens), noisy)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return series


def rate(shape: str, progress: float, step: int) -> float:
    if shape == "warm-up":
        return min(1.0, step / 30)
    return (1 + math.cos(math.pi * progress)) / 2 if shape == "cosine" else 1.0


def copied(series: Series) -> Series:
    return {step: {name: tensor.clone() for name, tensor in tensors.items()} for step, tensors in series.items()}


def written(series: Series, path: Path, *, sharded: bool = False) -> Path:
    """The series as people keep it: a folder per step, in one file or in two."""
    for step, tensors in series.items():
        folder = path / f"step{step}"
        folder.mkdir(parents=True)
        if not sharded:
            save_file(tensors, folder / "model.safetensors")
            continue
        first = {name: tensor for name, tensor in tensors.items() if in_first_shard(name)}
        save_file(first, folder / "model-00001-of-00002.safetensors")
        rest = {name: tensor for name, tensor in tensors.items() if name not in first}
        save_file(rest, folder / "model-00002-of-00002.safetensors")
    return path


def in_first_shard(name: str) -> bool:
    return name.startswith(("embed", "layers.0", "mask"))
