"""What a live monitor costs at its default budget, and what it measures for that: with and without it, taking turns.

    python -m benchmarks.monitor                     # as in `make bench`: every model once
    python -m benchmarks.monitor --repeat 5 --small  # the small model alone, five times with other seeds

The two trainings are the same and take turns in one process, update by update, so that a noisy machine is noisy for
both; processor time of this process is counted, in three ways: the difference between the two trainings (with its
standard error), what passes inside the calls of the monitor (without noise, but blind to what it does to caches), and
the monitor's own account, for which it is given a clock of processor time. Starting up (the first measurement, the
first imports, a worker) is printed on its own: one pays for it once. At the end the weights of both have to be the
same, bit for bit.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Mapping

import torch

import probes
from models.attention_only.model import AttentionOnly
from models.attention_only.presets import QUICK
from probes.monitor.budget import Budget
from probes.monitor.steps import Steps

SHARE = 0.01

Update = Callable[[], Mapping[str, float]]
Weights = Callable[[], Mapping[str, torch.Tensor]]


class Turns:
    """The processor time of one of two trainings that take turns: it stands still while the other one runs."""

    def __init__(self) -> None:
        self.other = 0.0

    def __call__(self) -> float:
        """Seconds since some moment, without those of the other training."""
        return time.process_time() - self.other


def run(repeat: int = 1, small: bool = False) -> None:
    """Print what the monitor adds to the training of a small model and of GPT-2 small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    print(f"Training with a monitor against training without, one thread, budget {100 * SHARE:g} %:")
    for background in (False, True):
        found = [_attention_only(1000, background, seed) for seed in range(repeat)]
        if repeat > 1:
            for what, values in zip(
                ("difference", "inside its calls", "own account"), zip(*found, strict=True), strict=True
            ):
                error = statistics.stdev(values) / math.sqrt(repeat)
                print(f"    {what} of {repeat}: mean {statistics.mean(values):+.2f} %, standard error {error:.2f}")
    if not small:
        _gpt2_small()
    torch.set_num_threads(threads)


def _attention_only(steps: int, background: bool, seed: int) -> tuple[float, float, float]:
    """A small model: many quick updates."""
    bare, monitored, clock = AttentionOnly(QUICK, seed), AttentionOnly(QUICK, seed), Turns()
    print(f"  attention-only, quick preset, {steps} steps{', measured by a worker' if background else ''}")
    began = time.process_time()
    monitor = probes.Monitor(
        lambda: dict(monitored.weights()),
        config=QUICK.describe(),
        budget=Budget(SHARE, clock),
        name="attention-only",
        background=background,
    )
    print(f"    start-up: {time.process_time() - began:.2f} s of processor time")
    return _compare((bare.update, bare.weights), (monitored.update, monitored.weights), monitor, clock, steps)


def _gpt2_small(steps: int = 50) -> None:
    """A model of the shape that people train: few slow updates."""
    (bare_model, bare), (model, monitored) = _gpt2_training(), _gpt2_training()
    clock = Turns()
    print(f"  GPT-2 small, 4 x 64 tokens, {steps} steps")
    monitor = probes.Monitor(model, budget=Budget(SHARE, clock), name="gpt2")
    _compare((bare, bare_model.state_dict), (monitored, model.state_dict), monitor, clock, steps)


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
    bare: tuple[Update, Weights], monitored: tuple[Update, Weights], monitor: probes.Monitor, clock: Turns, steps: int
) -> tuple[float, float, float]:
    """Train both, taking turns, and print how much longer the monitored one took and what was measured."""
    inside, without, with_it = [], [], []
    for turn in range(steps):
        for is_monitored in (turn % 2 == 0, turn % 2 == 1):
            start_cpu = time.process_time()
            scalars = (monitored if is_monitored else bare)[0]()
            if is_monitored:
                updated = time.process_time()
                monitor.step(None, **scalars)
                inside.append(time.process_time() - updated)
            (with_it if is_monitored else without).append(time.process_time() - start_cpu)
            clock.other += 0.0 if is_monitored else time.process_time() - start_cpu
    start_cpu = time.process_time()
    monitor.close()
    at_the_end = time.process_time() - start_cpu
    more = [w - b for w, b in zip(with_it, without, strict=True)]
    of_all = 100 / sum(without)
    difference, error = of_all * (sum(more) + at_the_end), of_all * statistics.stdev(more) * math.sqrt(steps)
    calls, account = of_all * (sum(inside) + at_the_end), 100 * monitor.budget.used
    print(f"    {1e3 * sum(without) / steps:.1f} ms of processor time a step without; with it")
    print(
        f"    {difference:+.2f} % (standard error {error:.2f}); inside its calls {calls:.2f} %, "
        f"of which {of_all * at_the_end:.2f} at the end"
    )
    schedule = Steps(1.1)
    schedule.start(0)
    due = sum(schedule.is_due(step) for step in range(steps + 1))
    print(f"    {monitor.table['step'].nunique()} measured of {due} scheduled (and the last)")
    print(f"    its own account: {monitor.budget}")
    for event in monitor.detected:
        print(f"    announced: {event}")
    same = all(torch.equal(tensor, monitored[1]()[name]) for name, tensor in bare[1]().items())
    print(f"    weights of both trainings: {'the same, bit for bit' if same else 'NOT THE SAME'}")
    return difference, calls, account


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--small", action="store_true")
    run(**vars(parser.parse_args()))
