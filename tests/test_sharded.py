"""A model trained by several ranks, monitored: the same numbers, the same training, and nobody waits for ever."""

import pandas as pd
import pytest

import probes
from checkpoints import open_run
from probes.monitor import AdaptiveCheckpoints
from tests.in_ranks import in_ranks
from tests.sharded_training import Training, replicated, sharded

KEYS = ["step", "layer", "head", "circuit", "probe", "component"]
STEPS = [0, 1, 2, 5, 9, 12]


def inside(model):
    """Of a model that is wrapped, the model."""
    return getattr(model, "module", model)


def train_and_write(rank, spread, heads, watched, path):
    training = Training(spread, heads)
    checkpoints = AdaptiveCheckpoints(path, schedule=STEPS)
    with probes.Monitor(watched(training.model), budget=1.0, schedule=STEPS, checkpoints=checkpoints) as monitor:
        for _, loss in training:
            monitor.step(loss=loss)
    return monitor.table, monitor.failure


@pytest.mark.parametrize(
    ("ranks", "spread", "heads", "watched"),
    [
        pytest.param(2, replicated, 2, lambda m: m, id="replicated-and-wrapped"),
    ],
)
def test_x(tmp_path):
    pass
