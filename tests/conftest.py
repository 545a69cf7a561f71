import numpy as np
import pytest
import torch
from hypothesis import settings

# Reproducible property tests, without a time limit per example: the machines that run them are noisy.
settings.register_profile("project", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("project")
torch.set_num_threads(1)


FEW_SEEDS = 6


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds",
        type=int,
        default=FEW_SEEDS,
        help=f"series of each kind in tests of how often something is right: {FEW_SEEDS} by default, 200 for a release",
    )


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> int:
    """On how many seeds to judge what is only true on average."""
    return request.config.getoption("--seeds")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
