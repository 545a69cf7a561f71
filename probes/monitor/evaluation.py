"""Somebody's evaluation, run in the middle of training without training noticing.

What it draws, training would have drawn otherwise, and dropout that it turns off would stay off: so generators and
modes are put back, and a training with evaluations is the same, bit for bit, as one without.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch

Evaluation = Callable[[], Mapping[str, float]]
"""Gives scalars of the weights as they are now, by name."""


@contextmanager
def preserving_rng_and_mode(model: object) -> Iterator[None]:
    """Without gradients, in evaluation mode; modes and all random generators are as before afterwards."""
    modules = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    modes = [module.training for module in modules]
    python, numpy_ = random.getstate(), np.random.get_state()  # noqa: NPY002 (the legacy generator is what users seed)
    try:
        with torch.random.fork_rng(), torch.no_grad():
            if isinstance(model, torch.nn.Module):
                model.eval()
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_)  # noqa: NPY002
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


def evaluated(evaluate: Evaluation, model: object) -> dict[str, float]:
    """What an evaluation of the model gives; it leaves nothing behind."""
    with preserving_rng_and_mode(model):
        return dict(evaluate())
