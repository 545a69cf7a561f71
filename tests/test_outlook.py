"""What a trainer's own settings leave to be watched is said before training."""

import pytest
import transformers

from probes.monitor.callbacks import huggingface
from tests import small_gpt2
from tests.other_trainers import MARKS, trainer

pytestmark = MARKS


def lines(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "probes.monitor"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"logging_steps": 500, "max_steps": 2},
            "nothing can be watched in this training: logging_steps=500, and 2 updates give 0 values, of which a first "
            "look takes 40. logging_steps=1 makes it possible",
        ),
        ({"logging_strategy": "no", "max_steps": 2}, "nothing can be watched in this training: logging_strategy is"),
    ],
)
def test_the_trainers_defaults_are_told_that_nothing_can_be_watched(tmp_path, caplog, settings, said):
    trainer(tmp_path, huggingface.MonitorCallback(), **settings).train()
    assert any(line.startswith(said) for line in lines(caplog))


def test_a_trainer_that_logs_seldom_is_told_how_many_looks_there_will_be(caplog):
    callback = huggingface.MonitorCallback()
    arguments = transformers.TrainingArguments("unused", use_cpu=True, report_to=[], logging_steps=500)
    state = transformers.TrainerState(max_steps=40_000, logging_steps=500)
    callback.on_train_begin(arguments, state, transformers.TrainerControl(), model=small_gpt2.model())
    assert lines(caplog)[0] == (
        "logging_steps=500: 40000 updates give 80 values, which are looked at 4 times, first after 20000 updates. "
        "What happens within fewer than 1000 updates is not resolved"
    )
