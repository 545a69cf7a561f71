"""What the audit says of planted faults and of healthy runs, on seeds that nothing else is judged or tuned on.

Caught is a fault whose steps are all named, condemned or suspect. A step that is condemned and was not touched, or any
that is condemned in a healthy run, is a false condemnation.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from unittest.mock import patch

from checkpoints.audit.audit import judge
from checkpoints.audit.fingerprint import fingerprint
from tests import attention_series, planted_faults, planted_in_transformers, training_series

SEEDS = (7000,)
"""Of what is trained for this table, but the two series of moments; tests and thresholds know seeds below 1000."""


@dataclass(frozen=True)
class Row:
    """One planted fault or healthy run, and what was said."""

    name: str
    planted: list[int]
    named: dict[str, str]
    """By planted step: the kind of fault that was said of it."""
    condemned_besides: list[int]

    @property
    def is_caught(self) -> bool:
        """Whether something was said of every planted step."""
        return set(self.named) == set(map(str, self.planted))


@contextmanager
def trained_from(fresh: int) -> Iterator[None]:
    """All little runs are trained from this seed."""
    trained, healthy = attention_series.trained, training_series.healthy
    count = len(training_series.SETTINGS)

    @cache
    def other_trained(number: int, seed: int = 0) -> training_series.Series:
        return trained(number, fresh + seed)

    @cache
    def other_healthy(number: int) -> training_series.Series:
        return healthy(number + fresh * count)

    with ExitStack() as stack:
        stack.enter_context(patch.object(planted_in_transformers, "trained", other_trained))
        stack.enter_context(patch.object(planted_faults, "healthy", other_healthy))
        stack.enter_context(patch.object(planted_faults, "another_run", lambda tensors: other_healthy(20)[300]))
        yield


def planted() -> dict[str, Callable[[], tuple[dict, dict]]]:
    """All planted faults by name: in a transformer, and in a small network."""
    there = {f"{name} (transformer)": make for name, make in planted_in_transformers.PLANTED.items()}
    distant = {
        "a small adapter merged between distant steps (transformer)": lambda: planted_in_transformers.changed(
            1, 15, planted_in_transformers.merged_adapter, "jump", on=True
        )
    }
    return there | distant | planted_faults.PLANTED


def healthy(fresh: int) -> dict[str, Callable[[], dict]]:
    """All healthy runs by name."""
    habits = {
        f"transformer, habit {number}": lambda number=number: attention_series.trained(number, fresh)
        for number in range(len(attention_series.HABITS))
    }
    count = len(training_series.SETTINGS)
    return habits | {
        f"small network, setting {number}": lambda number=number: training_series.healthy(number + fresh * count)
        for number in range(count)
    }


def said_of(name: str, series: dict, planted: list[int]) -> Row:
    """Judge one series."""
    prints = {step: {n: fingerprint(t, _shard(n)) for n, t in tensors.items()} for step, tensors in series.items()}
    faults = judge(prints)
    named = {str(step): next((f.kind for f in faults if f.step == step), "") for step in planted}
    besides = sorted({f.step for f in faults if f.verdict == "condemned"} - {*planted})
    return Row(name, planted, {step: kind for step, kind in named.items() if kind}, besides)


def _shard(name: str) -> str:
    """Some faults are of one shard: the small network is kept in two."""
    return f"model-0000{1 if training_series.in_first_shard(name) else 2}-of-00002.safetensors"


def all_rows() -> tuple[list[Row], list[Row]]:
    """What is said of every planted fault, and of every healthy run, once for each seed."""
    faults, sound = [], []
    for fresh in SEEDS:
        with trained_from(fresh):
            for name, make in planted().items():
                series, expected = make()
                faults.append(said_of(name, series, sorted(expected)))
            sound += [said_of(name, make(), []) for name, make in healthy(fresh).items()]
    return faults, sound
