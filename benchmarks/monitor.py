"""What a live monitor costs at its default budget, and what it measures for that: with and without it, taking turns.

The two trainings are the same and take turns in one process, so that a noisy machine is noisy for both; processor time
of this process is counted. Starting up (the first measurement, the first imports, a worker) is printed on its own: one
pays for it once. At the end the weights of both have to be the same, bit for bit.
"""

import statistics
import time
from collections.abc import Callable, Mapping

import torch

import probes
from models.attention_only.model import AttentionOnly
from models.attention_only.presets import QUICK
from probes.monitor.budget import Budget
from probes.monitor.measuring import HAND_OVER, MEASUREMENT
from probes.monitor.steps import Steps

SHARE = 0.01

Update = Callable[[], Mapping[str, float]]
Weights = Callable[[], Mapping[str, torch.Tensor]]


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
    for background in (False, True):
        _attention_only(1000, background)
    _gpt2_small()
    torch.set_num_threads(threads)


def _attention_only(steps: int, background: bool) -> None:
    """A small model: many quick updates."""
    bare, monitored, clock = AttentionOnly(QUICK, 0), AttentionOnly(QUICK, 0), Turns()
    print(f"  attention-only, quick preset, {steps} steps{', measured by a worker' if background else ''}")
    began = time.perf_counter()
    monitor = probes.Monitor(
        lambda: dict(monitored.weights()),
        config=QUICK.describe(),
        budget=Budget(SHARE, clock),
        name="attention-only",
        background=background,
    )
    print(f"    start-up: {time.perf_counter() - began:.1f} s")
    _compare((bare.update, bare.weights), (monitored.update, monitored.weights), monitor, clock, steps, turns=50)


def _gpt2_small(steps: int = 50) -> None:
    """A model of the shape that people train: few slow updates."""
    (bare_model, bare), (model, monitored) = _gpt2_training(), _gpt2_training()
    clock = Turns()
    print(f"  GPT-2 small, 4 x 64 tokens, {steps} steps")
    monitor = probes.Monitor(model, budget=Budget(SHARE, clock), name="gpt2")
    _compare((bare, bare_model.state_dict), (monitored, model.state_dict), monitor, clock, steps, turns=steps)


def _gpt2_training() -> tuple[torch.nn.Module, Update]:
    """GPT-2 small and a function that trains it by one update."""
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )  # two take turns with one generator
    model = transformers.GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(50_000, (4, 64))

    def update() -> dict[str, float]:
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return {"loss": float(loss.detach())}

    return model, update


def _compare(
    bare: tuple[Update, Weights],
    monitored: tuple[Update, Weights],
    monitor: probes.Monitor,
    clock: Turns,
    steps: int,
    turns: int,
) -> None:
    """Train both, taking turns, and print how much longer the monitored one took and what was measured."""

    def with_monitor() -> None:
        monitor.step(None, **monitored[0]())

    without, with_it = [], []
    for turn in range(turns):
        for is_monitored in (turn % 2 == 0, turn % 2 == 1):
            start, start_cpu = time.perf_counter(), time.process_time()
            for _ in range(steps // turns):
                (with_monitor if is_monitored else bare[0])()
            (with_it if is_monitored else without).append(time.process_time() - start_cpu)
            clock.other += 0.0 if is_monitored else time.perf_counter() - start
    start_cpu = time.process_time()
    monitor.close()
    with_it[-1] += time.process_time() - start_cpu
    ratios = [w / b for w, b in zip(with_it, without, strict=True)]
    error = statistics.stdev(ratios) / turns**0.5
    print(
        f"    {1e3 * sum(without) / steps:.1f} ms of processor time a step without; with it "
        f"{_percent(sum(with_it) / sum(without))} more"
    )
    print(f"    (turn by turn: median {_percent(statistics.median(ratios))}, standard error {100 * error:.2f} %)")
    schedule = Steps(1.1)
    schedule.start(0)
    due = sum(schedule.is_due(step) for step in range(steps + 1))
    done = monitor.budget.done[MEASUREMENT] + monitor.budget.done[HAND_OVER]
    print(f"    {monitor.table['step'].nunique()} measured of {due} scheduled (and the last); {done} asked for")
    print(f"    its own account: {monitor.budget}")
    same = all(torch.equal(tensor, monitored[1]()[name]) for name, tensor in bare[1]().items())
    print(f"    weights of both trainings: {'the same, bit for bit' if same else 'NOT THE SAME'}")


def _percent(ratio: float) -> str:
    """What is added, as in "+0.92 %"."""
    return f"{100 * (ratio - 1):+.2f} %"


if __name__ == "__main__":
    run()
