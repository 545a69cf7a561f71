"""What both callbacks do with their settings, and say where their trainer is not installed."""

import importlib
import sys

import pytest

from probes.monitor.callbacks import huggingface, lightning
from tests.other_trainers import MARKS, trainer

pytestmark = MARKS


@pytest.mark.parametrize("callback", [huggingface, lightning])
@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"budgets": 0.1}, TypeError, "no setting 'budgets'; there are circuits"),
        ({"step": 3}, TypeError, "step comes from the trainer"),
        ({"budget": 2}, ValueError, "budget is 2"),
        ({"schedule": 0.5}, ValueError, "schedule is 0.5"),
        ({"alpha": 1}, ValueError, "alpha is 1"),
        ({"probes": ["subspace_distance"]}, ValueError, "final weights"),
    ],
)
def test_what_is_asked_for_wrongly_is_refused_when_the_callback_is_made(callback, settings, error, said):
    with pytest.raises(error, match=said):
        callback.MonitorCallback(**settings)


def test_settings_that_describe_the_heads_reach_the_monitor(tmp_path):
    callback = huggingface.MonitorCallback(config={"n_head": 4}, schedule=iter([0, 3]), name="mine", budget=1.0)
    trainer(tmp_path, callback, max_steps=4).train()
    assert sorted(callback.monitor.table["head"].unique()) == [0, 1, 2, 3]  # the model says two
    assert sorted(callback.monitor.table["step"].unique()) == [0, 3, 4]
    assert set(callback.monitor.table["run"]) == {"mine"}


@pytest.mark.parametrize("library", ["transformers", "lightning"])
def test_a_library_that_is_not_there_is_named_with_its_extra(library, monkeypatch):
    extra = {"transformers": "huggingface"}.get(library, library)
    for name in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"probes.monitor.callbacks.{extra}")
    with pytest.raises(ImportError, match=rf"pip install 'checkpoint-probes\[{extra}\]'"):
        importlib.import_module(f"probes.monitor.callbacks.{extra}")
