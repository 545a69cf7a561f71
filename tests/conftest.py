import numpy as np
import pytest
import torch
from hypothesis import settings

# Reproducible property tests, without a time limit per example: the machines that run them are noisy.
settings.register_profile("project", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("project")
torch.set_num_threads(1)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
