"""What a run logged: the learning rate under its many names, where it jumps, and what is not searched."""

import numpy as np
import pandas as pd
import pytest

from probes.series.logged import chosen_metrics, interventions_of, is_setting, learning_rate_name, loss_name


@pytest.mark.parametrize("name", ["lr", "train/lr", "learning_rate", "train/learning_rate", "optim.lr", "lr-AdamW/pg1"])
def test_a_learning_rate_is_known_by_its_name(name):
    assert learning_rate_name(pd.DataFrame({"loss": [1.0], name: [1e-3]})) == name
    assert is_setting(name)


@pytest.mark.parametrize("name", ["loss", "color", "lrs_loss", "eval/accuracy", "steps_to_goal"])
def test_other_names_are_searched(name):
    assert not is_setting(name)


def test_the_loss_is_the_plain_one_before_any_other():
    assert loss_name(pd.DataFrame(columns=["eval_loss", "train/loss", "loss"])) == "loss"
    assert loss_name(pd.DataFrame(columns=["accuracy", "eval_loss"])) == "eval_loss"
    assert loss_name(pd.DataFrame(columns=["accuracy"])) is None


STEPS = np.arange(1, 201) * 10


@pytest.mark.parametrize(
    ("rate", "jumps"),
    [
        (2e-3 * (1 - (STEPS - 1) / STEPS[-1]), []),  # a straight decay: its logarithm jumps where it ends
        (2e-3 * np.minimum(STEPS / 300, 1) * (1 + np.cos(np.pi * STEPS / 2001)) / 2, []),
        (np.where(STEPS < 1000, 1e-3, 1e-4), [1000.0]),
        (np.select([STEPS < 500, STEPS < 1000], [1e-3, 1e-4], 1e-5), [500.0, 1000.0]),
        (np.full(200, 1e-3), []),
    ],
    ids=["linear", "cosine", "one step", "two steps", "constant"],
)
def test_interventions_are_jumps_and_not_the_end_of_a_decay(rate, jumps):
    assert interventions_of(pd.DataFrame({"loss": 1.0, "lr": rate}, index=STEPS)) == jumps


def test_metrics_that_are_chosen_keep_the_learning_rate_beside_them():
    logged = pd.DataFrame({"loss": [1.0], "accuracy": [0.5], "lr": [1e-3], "epoch": [1.0]})
    assert list(chosen_metrics(logged, ["accuracy"]).columns) == ["accuracy", "lr", "epoch"]
    with pytest.raises(ValueError, match="no metric is called perplexity; there are loss, accuracy"):
        chosen_metrics(logged, ["perplexity"])
