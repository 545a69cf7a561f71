"""What a live monitor costs at its default budget: the same training with and without it, taking turns in one run."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch

import probes
from models.attention_only.model import AttentionOnly
from models.attention_only.presets import QUICK
from probes.monitor.budget import Budget

SHARE = 0.01

Update = Callable[[], Mapping[str, float]]


class Turns:
    """The time of one of two trainings that take turns: it stands still while the other one runs."""

    def __init__(self) -> None:
        self.other = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return time.perf_counter() - self.other


def run() -> None:
    """Print both."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    print(f"Training with a monitor against training without, one thread, budget {100 * SHARE:g} %:")
    _attention_only()
    _gpt2_small()
    torch.set_num_threads(threads)


def _attention_only(steps: int = 5000) -> None:
    bare, watched, clock = AttentionOnly(QUICK, 0), AttentionOnly(QUICK, 0), Turns()
    monitor = probes.Monitor(
        lambda: dict(watched.weights()), config=QUICK.describe(), budget=Budget(SHARE, clock), name="attention-only"
    )
    print(f"  attention-only, quick preset, {steps} steps")
    _compare(bare.update, watched.update, monitor, clock, steps, turns=50)


def _gpt2_small(steps: int = 50) -> None:
    (_, bare), (model, watched) = _gpt2_training(), _gpt2_training()
    clock = Turns()
    monitor = probes.Monitor(model, budget=Budget(SHARE, clock), name="gpt2")
    print(f"  GPT-2 small, 4 x 64 tokens, {steps} steps")
    _compare(bare, watched, monitor, clock, steps, turns=steps)


def _gpt2_training() -> tuple[torch.nn.Module, Update]:
    import transformers

    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(50_000, (4, 64))

    def update() -> dict[str, float]:
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return {"loss": float(loss.detach())}

    return model, update


def _compare(bare: Update, watched: Update, monitor: probes.Monitor, clock: Turns, steps: int, turns: int) -> None:
    def with_monitor() -> None:
        monitor.step(None, **watched())

    without, with_it = [], []
    first = monitor.budget.spent  # the first weights were measured before the first turn
    for turn in range(turns):
        for is_watched in (turn % 2 == 0, turn % 2 == 1):
            start = time.perf_counter()
            for _ in range(steps // turns):
                (with_monitor if is_watched else bare)()
            seconds = time.perf_counter() - start
            (with_it if is_watched else without).append(seconds)
            clock.other += 0.0 if is_watched else seconds
    start = time.perf_counter()
    monitor.close()
    with_it[0] += first + time.perf_counter() - start
    ratios = [w / b for w, b in zip(with_it, without, strict=True)]
    error = statistics.stdev(ratios) / turns**0.5
    print(
        f"    {1e3 * sum(without) / steps:.1f} ms a step without; with it {_percent(sum(with_it) / sum(without))} more"
    )
    print(f"    (turn by turn: median {_percent(statistics.median(ratios))}, standard error {100 * error:.2f} %)")
    print(f"    its own account: {monitor.budget}")


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f} %"
