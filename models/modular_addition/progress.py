"""When the circuit formed, by what the network computes: the progress measures of `fourier` over a whole run."""

import pandas as pd
import torch
from torch import Tensor

from checkpoints import Run
from models.modular_addition import fourier
from models.modular_addition.model import all_logits, config_of, loss_of
from models.modular_addition.task import ModularArithmetic, Pairs


def progress(run: Run) -> pd.DataFrame:
    """By step: training and test loss, restricted (test) and excluded (training) loss, and frequencies in use.

    Key frequencies are those of the last checkpoint. frequencies is how many the embedding uses: the exponential of the
    entropy of their shares of its power. Random labels have no waves to keep; there the two losses mean nothing.
    For multiplication the answer 0, which never occurs, is left out of all of them.
    """
    config = config_of(run.config)
    task = config.task
    training, test = task.split(torch.Generator().manual_seed(run.seed or 0))
    keys = fourier.key_frequencies(all_logits(run.checkpoint(run.steps[-1]), config), task.exponents)
    rows = []
    for step in run.steps:
        checkpoint = run.checkpoint(step)
        logits = all_logits(checkpoint, config)
        power = fourier.embedding_power(checkpoint["embed.weight"][task.elements].double())
        rows.append(
            {
                "loss": _loss(logits, training, task),
                "test_loss": _loss(logits, test, task),
                "restricted_loss": _loss(fourier.restricted(logits, task.exponents, keys), test, task),
                "excluded_loss": _loss(fourier.excluded(logits, task.exponents, keys), training, task),
                "frequencies": float(torch.exp(-torch.special.xlogy(power, power).sum())),
            }
        )
    table = pd.DataFrame(rows, index=pd.Index(run.steps, name="step"))
    table.attrs["key_frequencies"] = keys
    return table


def _loss(logits: Tensor, pairs: Pairs, task: ModularArithmetic) -> float:
    exponent = torch.empty(task.modulus, dtype=torch.int64)
    exponent[task.elements] = torch.arange(task.order)
    chosen = logits[exponent[pairs.first], exponent[pairs.second]]
    return float(loss_of(chosen, exponent[pairs.answer]))
