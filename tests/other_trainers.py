"""What the tests of the callbacks share: tokens to train on, a Trainer, and what to compare."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from lightning.pytorch import Callback

from probes.monitor import Monitor, Sink
from probes.monitor.resting import Resting
from tests import small_gpt2
from tests.told import event

ROOT = Path(__file__).parents[1]
KEYS = ["step", "layer", "head", "circuit", "probe", "component"]
TOKENS = torch.randint(20, (80, 8), generator=torch.Generator().manual_seed(7))
EVENT = event(6, detected_at=7)

MARKS = [
    pytest.mark.slow,  # importing both trainers takes longer than the tests, so
    pytest.mark.xdist_group("callbacks"),  # one worker does it
    # Lightning on a newer torch, and what it says of how it is used here
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used to create the checkpoint"),
]


def example(tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Nothing predicts the first token. Without the mask the Trainer counts it, and its losses are 7/8 of the mean."""
    return {"input_ids": tokens, "labels": torch.cat((torch.tensor([-100]), tokens[1:]))}


EXAMPLES = [example(tokens) for tokens in TOKENS]


def losses_of(model: torch.nn.Module) -> list[float]:
    """A list that grows by the mean loss of every training batch, computed here from the logits."""
    losses: list[float] = []

    def record(module, inputs, given, output):
        if module.training:
            logits, labels = output.logits[:, :-1].flatten(0, 1), given["labels"][:, 1:].flatten()
            losses.append(torch.nn.functional.cross_entropy(logits, labels).item())

    model.register_forward_hook(record, with_kwargs=True)
    return losses


def assert_same_numbers(live: pd.DataFrame, written: pd.DataFrame, steps: list[int]) -> None:
    """At these steps, to rounding. Drift is from the measurement before: at the first of them not the same one."""
    live, written = (table[table["step"].isin(steps) & table["probe"].isin(live["probe"])] for table in (live, written))
    both = live.merge(written, on=KEYS, suffixes=("_live", ""), how="outer", indicator=True)
    assert sorted(both["step"].unique()) == steps
    both = both[~both["probe"].str.startswith("subspace_drift") | (both["step"] > steps[0])]
    assert (both["_merge"] == "both").all()
    assert both["value"].notna().all()
    np.testing.assert_allclose(both["value_live"], both["value"], rtol=1e-6, atol=1e-9)


def assert_same_weights(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name]), name


def announce_at(step: int, monkeypatch) -> None:
    monkeypatch.setattr(Resting, "rest", lambda *_: None)  # there is nothing to look at yet, and no look is due
    monkeypatch.setattr(Monitor, "_found", lambda self, now, last: [EVENT] if now == step and not last else [])


class Kept(Sink):
    def __init__(self):
        self.steps, self.closed = [], 0

    def scalars(self, step, scalars):
        self.steps.append(step)

    def close(self):
        self.closed += 1


def trainer(folder: Path, *callbacks, model=None, **arguments) -> transformers.Trainer:
    chosen = {"max_steps": 12, "learning_rate": 3e-3, "logging_steps": 1, "save_strategy": "no"} | arguments
    return transformers.Trainer(
        model or small_gpt2.model(),
        transformers.TrainingArguments(
            str(folder), use_cpu=True, report_to=[], disable_tqdm=True, per_device_train_batch_size=4, **chosen
        ),
        train_dataset=EXAMPLES,  # type: ignore[arg-type]
        eval_dataset=EXAMPLES[:8],  # type: ignore[arg-type]
        callbacks=list(callbacks),
    )


class Stop(transformers.TrainerCallback, Callback):
    """Raises after the fifth update, in either trainer."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 5:
            raise RuntimeError("out of memory")

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == 5:
            raise RuntimeError("out of memory")
