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
        """Seconds since some moment, without those of the other training."""
        return time.perf_counter() - self.other


def run() -> None:
    """Print what the monitor adds to the training of a small model and of GPT-2 small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    print(f"Training with a monitor against training without, one thread, budget {100 * SHARE:g} %:")
    _attention_only()
    _gpt2_small()
    torch.set_num_threads(threads)


def _attention_only(steps: int = 5000) -> None:
    """A small model: many quick updates."""
    bare, monitored, clock = AttentionOnly(QUICK, 0), AttentionOnly(QUICK, 0), Turns()
    monitor = probes.Monitor(
        lambda: dict(monitored.weights()), config=QUICK.describe(), budget=Budget(SHARE, clock), name="attention-only"
    )
    print(f"  attention-only, quick preset, {steps} steps")
    _compare(bare.update, monitored.update, monitor, clock, steps, turns=50)


def _gpt2_small(steps: int = 50) -> None:
    """A model of the shape that people train: few slow updates."""
    (_, bare), (model, monitored) = _gpt2_training(), _gpt2_training()
    clock = Turns()
    monitor = probes.Monitor(model, budget=Budget(SHARE, clock), name="gpt2")
    print(f"  GPT-2 small, 4 x 64 tokens, {steps} steps")
    _compare(bare, monitored, monitor, clock, steps, turns=steps)


def _gpt2_training() -> tuple[torch.nn.Module, Update]:
    """GPT-2 small and a function that trains it by one update."""
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


def _compare(bare: Update, monitored: Update, monitor: probes.Monitor, clock: Turns, steps: int, turns: int) -> None:
    """Train both, taking turns, and print how much longer the monitored one took."""

    def with_monitor() -> None:
        monitor.step(None, **monitored())

    without, with_it = [], []
    first = monitor.budget.spent  # the first weights were measured before the first turn
    for turn in range(turns):
        for is_monitored in (turn % 2 == 0, turn % 2 == 1):
            start = time.perf_counter()
            for _ in range(steps // turns):
                (with_monitor if is_monitored else bare)()
            seconds = time.perf_counter() - start
            (with_it if is_monitored else without).append(seconds)
            clock.other += 0.0 if is_monitored else seconds
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
    """What is added, as in "+0.92 %"."""
    return f"{100 * (ratio - 1):+.2f} %"
