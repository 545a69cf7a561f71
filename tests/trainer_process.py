"""One of several processes that train together with the Trainer of Transformers: an event is announced after 7 updates.

    python -m torch.distributed.run --standalone --nproc_per_node 2 -m tests.trainer_process FOLDER

Only the first process monitors. Every process leaves a file that says at which steps it saved and evaluated.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

from probes.monitor import Monitor
from probes.monitor.callbacks.huggingface import MonitorCallback
from probes.monitor.resting import Resting
from tests.other_trainers import EVENT, trainer


class Seen(transformers.TrainerCallback):
    """Steps at which this process saved and evaluated."""

    def __init__(self) -> None:
        self.steps: dict[str, list[int]] = {"saved": [], "evaluated": []}

    def on_save(self, args, state, control, **kwargs):
        self.steps["saved"].append(state.global_step)

    def on_evaluate(self, args, state, control, **kwargs):
        self.steps["evaluated"].append(state.global_step)


def train(folder: Path) -> None:
    Resting.rest = lambda *_: None  # there is nothing to look at yet, and no look is due
    Monitor._found = lambda self, step, last: [EVENT] if step == EVENT.detected_at and not last else []
    seen, monitored = Seen(), MonitorCallback(budget=1.0, save_on_event=True, evaluate_on_event=True)
    process = trainer(folder / "run", monitored, seen, eval_strategy="steps", eval_steps=1000, eval_delay=1000)
    process.train()
    assert monitored.monitor is not None
    found = seen.steps | {"events": len(monitored.monitor.detected), "processes": process.args.world_size}
    (folder / f"{process.args.process_index}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    train(Path(sys.argv[1]))
    if torch.distributed.is_initialized():  # else its threads may outlive the process
        torch.distributed.destroy_process_group()
