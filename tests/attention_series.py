"""Healthy little transformers in training, each with a habit that an audit must not take for a fault."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn

from checkpoints import schedules
from tests.training_series import Series, adam, sgd

WIDTH, HEADS, VOCABULARY, LAST = 24, 3, 40, 240
EVEN, LOG, DENSE = schedules.every(20, LAST), schedules.log_spaced(LAST, 22), [*range(0, 60, 4)]
SPARSE = [0, 80, 160, 240]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.ModuleDict({name: nn.Linear(WIDTH, WIDTH, bias=False) for name in ("q", "k", "v", "o")})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(WIDTH, 2 * WIDTH), "c_proj": nn.Linear(2 * WIDTH, WIDTH)})

    def forward(self, x):
        normed = self.ln_1(x)
        q, k, v = (self.attn[name](normed).unflatten(-1, (HEADS, -1)).transpose(1, 2) for name in "qkv")
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["o"](mixed.transpose(1, 2).flatten(-2))
        return x + self.mlp["c_proj"](torch.relu(self.mlp["c_fc"](self.ln_2(x))))


class Small(nn.Module):
    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(12, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(2)])
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.lm_head.weight = self.wte.weight
        self.register_buffer("mask", torch.ones(12, 12).tril())

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


@dataclass(frozen=True)
class Habit:
    """How one of them is trained and saved."""

    rate: Callable[[int], float] = lambda step: 1.0
    steps: tuple[int, ...] = tuple(EVEN)
    optimizer: Callable = adam
    settings: tuple = (("lr", 3e-3),)
    dtype: torch.dtype = torch.float32
    frozen: str = "nothing"
    tied: bool = False
    average: float = 0.0
    """Of an exponential average of the weights, which is saved instead of them."""
    restarts: tuple[tuple[int, int], ...] = ()
    """(at, from): the optimizer begins anew at a step, with the weights of an earlier one."""


def cosine(step: int) -> float:
    return (1 + math.cos(math.pi * step / LAST)) / 2


HABITS = (
    Habit(),
    Habit(steps=tuple(LOG)),
    Habit(steps=tuple(DENSE)),
    Habit(steps=tuple(SPARSE)),
    Habit(rate=cosine),
    Habit(rate=lambda step: min(1.0, step / 60)),
    Habit(rate=lambda step: min(1.0, step / 60), steps=tuple(DENSE)),
    Habit(rate=lambda step: float(step < 140)),  # decays to exactly zero and goes on being saved
    Habit(rate=lambda step: float(not 80 <= step < 125)),  # stands still for a while
    Habit(rate=lambda step: max(0.0, 1 - step / 200), steps=tuple(LOG)),
    Habit(rate=lambda step: 10.0 if 100 <= step < 140 else 1.0),
    Habit(settings=(("lr", 3e-2),)),
    Habit(settings=(("lr", 3e-4),)),
    Habit(settings=(("lr", 1e-2), ("weight_decay", 1.0))),
    Habit(optimizer=sgd, settings=(("lr", 0.3), ("momentum", 0.9))),
    Habit(dtype=torch.bfloat16),
    Habit(dtype=torch.bfloat16, rate=cosine, steps=tuple(LOG)),
    Habit(frozen="attn", tied=True),
    Habit(frozen="wte"),
    Habit(average=0.98),
    Habit(average=0.9, steps=tuple(LOG), tied=True),
    Habit(restarts=((120, 120),)),
    Habit(restarts=((120, 60), (180, 120))),
)


@cache
def trained(number: int, seed: int = 0) -> Series:
    """The checkpoints of one of them."""
    habit = HABITS[number]
    torch.manual_seed(1000 * seed + number)
    model = Small(habit.tied)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(habit.frozen not in name)

    def optimizer():
        return habit.optimizer([p for p in model.parameters() if p.requires_grad], **dict(habit.settings))

    optimise, follows = optimizer(), torch.randperm(VOCABULARY)
    kept: Series = {}
    averaged = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    earlier: dict[int, dict] = {}
    for step in range(habit.steps[-1] + 1):
        earlier[step] = {name: tensor.clone() for name, tensor in model.state_dict().items()} if habit.restarts else {}
        for at, source in habit.restarts:
            if step == at:
                model.load_state_dict(earlier[source])
                optimise = optimizer()
        for name, tensor in model.state_dict().items():
            averaged[name].lerp_(tensor, 1 - habit.average)
        if step in habit.steps:
            saved = averaged if habit.average else model.state_dict()
            kept[step] = {name: tensor.detach().to(habit.dtype).clone() for name, tensor in saved.items()}
        for group in optimise.param_groups:
            group["lr"] = dict(habit.settings)["lr"] * habit.rate(step)
        tokens = torch.randint(0, VOCABULARY, (8, 12))
        tokens[:, 1::2] = follows[tokens[:, ::2]]
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimise.zero_grad()
        loss.backward()
        optimise.step()
    return kept
