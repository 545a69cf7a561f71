import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from checkpoints import layout
from tests.browser import chromium  # noqa: F401 (a fixture, for all tests of pages)

# Reproducible property tests, without a time limit per example: the machines that run them are noisy.
settings.register_profile("project", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("project")

# One thread in every process, this one and those that tests start: small matrices on busy cores wait for each other.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
threadpool_limits(limits=1)
torch.set_num_threads(1)

# The lock that guards progress bars is one for all processes that are forked from each other, and stays locked for ever
# where one of them is killed at the wrong moment: here each has its own, and no thread that might hold it at a fork.
tqdm.set_lock(threading.RLock())
tqdm.monitor_interval = 0


FEW_SEEDS = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds",
        type=int,
        default=FEW_SEEDS,
        help=f"series of each kind in tests of how often something is right: {FEW_SEEDS} by default, 200 for a release",
    )


def pytest_configure(config: pytest.Config) -> None:
    """What a shell starts in the background ignores Ctrl-C, and so would all that the tests start and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


WHOLLY_SLOW = ("test_callback_settings.py", "test_huggingface.py", "test_lightning.py", "test_sharded.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are left out, files with no others are not even imported: their libraries take seconds."""
    return True if config.option.markexpr == "not slow" and collection_path.name in WHOLLY_SLOW else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say so where tests that share something expensive are not kept on one worker, as some versions fail to do."""
    if getattr(config.option, "loadgroup", False):
        for item in items:
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
                raise pytest.UsageError(f"{item.nodeid} is not in its group: install the versions in constraints.txt")


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> int:
    """On how many seeds to judge what is only true on average."""
    return request.config.getoption("--seeds")


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
