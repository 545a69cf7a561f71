from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import settings

from checkpoints import layout

# Reproducible property tests, without a time limit per example: the machines that run them are noisy.
settings.register_profile("project", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("project")
torch.set_num_threads(1)


DURABLE = layout.to_disk


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """A power cut is not what most tests are about, and waiting for the disk is most of what saving costs them."""
    layout.to_disk = lambda descriptor: None
    yield
    layout.to_disk = DURABLE


@pytest.fixture
def durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written as they are in earnest, for tests of what survives a crash."""
    monkeypatch.setattr(layout, "to_disk", DURABLE)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
