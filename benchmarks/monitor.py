"""What a live monitor costs at its default budget, and what it measures for that: with and without it, taking turns.

    python -m benchmarks.monitor                     # as in `make bench`: every model once
    python -m benchmarks.monitor --repeat 5 --small  # the small model alone, five times with other seeds

The two trainings are the same and take turns in one process, ten updates each, so that a noisy machine is noisy for
both. Processor time of this process is counted, in two parts that add up to the price. What passes inside the calls of
the monitor is measured call by call (what reading the clock takes is taken off). What the monitor does to the updates
besides, by the caches that it empties, is the median over stretches of the ratio of a quick update with it to one
without, with a 95 % interval by the bootstrap: nine in ten updates of a stretch follow a call of the monitor, or none.
Beside these stands the monitor's own account, for which it is given a clock of processor time. Starting up (the first
measurement, the first imports, a worker) is printed on its own: one pays for it once. At the end the weights of both
have to be the same, bit for bit.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

import probes
from models.attention_only.model import AttentionOnly
from models.attention_only.presets import QUICK
from probes.monitor.budget import Budget
from probes.monitor.steps import Steps

SHARE = 0.01
STRETCH = 10
"""Updates of one training before it is the other's turn."""

Update = Callable[[], Mapping[str, float]]
Weights = Callable[[], Mapping[str, torch.Tensor]]
Shares = dict[str, float]
"""Parts of the price, in percent of the time without a monitor."""


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
        for what in found[0] if repeat > 1 else ():
            values = [one[what] for one in found]
            error = statistics.stdev(values) / math.sqrt(repeat)
            print(f"    {what}, mean of {repeat}: {statistics.mean(values):+.2f} %, standard error {error:.2f}")
    if not small:
        _gpt2_small()
    torch.set_num_threads(threads)


def _attention_only(steps: int, background: bool, seed: int) -> Shares:
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
) -> Shares:
    """Train both, taking turns, and print how much longer the monitored one took and what was measured."""
    times = _taken_in_turns(bare[0], monitored[0], monitor, clock, steps)
    start_cpu = time.process_time()
    monitor.close()
    at_the_end = time.process_time() - start_cpu
    total = sum(times.without)
    inside = 100 * (sum(times.inside) - steps * statistics.median(times.clock) + at_the_end) / total
    beside, low, high = _shift(times.without, times.with_it)
    print(f"    {1e3 * total / steps:.1f} ms of processor time a step without; with it")
    print(
        f"    {inside:.2f} % inside its calls, {100 * at_the_end / total:.2f} of it at the end; the updates themselves "
        f"{beside:+.2f} % [{low:+.2f}, {high:+.2f}]"
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
    return {"inside its calls": inside, "the updates themselves": beside, "own account": 100 * monitor.budget.used}


@dataclass
class Times:
    """Seconds of processor time, one number per update."""

    without: list[float] = field(default_factory=list)
    with_it: list[float] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    """What reading the clock twice takes where nothing is done between, after an update as everywhere here."""


def _taken_in_turns(bare: Update, monitored: Update, monitor: probes.Monitor, clock: Turns, steps: int) -> Times:
    """Train both, `STRETCH` updates of one and then of the other, each of them first every other time."""
    times, now = Times(), time.process_time
    for turn, begin in enumerate(range(0, steps, STRETCH)):
        for is_monitored in (turn % 2 == 0, turn % 2 == 1):
            for _ in range(begin, min(begin + STRETCH, steps)):
                start = now()
                scalars = (monitored if is_monitored else bare)()
                updated = now()
                if is_monitored:
                    monitor.step(None, **scalars)
                stepped = now()
                (times.with_it if is_monitored else times.without).append(updated - start)
                (times.inside if is_monitored else times.clock).append(stepped - updated)
                clock.other += 0.0 if is_monitored else now() - start
    return times


def _shift(without: list[float], with_it: list[float], draws: int = 2000) -> tuple[float, float, float]:
    """By how many percent updates take longer in a stretch with the monitor: median over stretches, 95 % interval.

    Of a stretch the lower quartile counts: what other processes do to an update only makes it longer.
    """
    whole = len(without) // STRETCH * STRETCH
    typical = [np.quantile(np.reshape(times[:whole], (-1, STRETCH)), 0.25, axis=1) for times in (without, with_it)]
    ratios = 100 * (typical[1] / typical[0] - 1)
    drawn = np.median(np.random.default_rng(0).choice(ratios, (draws, len(ratios))), axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(np.median(ratios)), float(low), float(high)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--small", action="store_true")
    run(**vars(parser.parse_args()))
