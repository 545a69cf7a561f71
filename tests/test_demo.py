"""`make demo` ends with a report on a run that learned, the gallery beside it, and what to do with one's own."""

import shutil

import pytest

from analyses import demo
from models.attention_only.presets import PRESETS
from tests.documents import ROOT


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """As if the training in the background had left this run, and nothing else had to be done."""
    shutil.copytree(ROOT / "checkpoints" / "reference" / "linear-icl", tmp_path / "runs" / demo.LEARNER)
    monkeypatch.setattr(demo.sys, "executable", shutil.which("true"))
    monkeypatch.setattr(demo, "draw", lambda *args, **kwargs: None)
    return tmp_path


def test_it_ends_with_the_path_of_a_report_beside_the_gallery_and_what_to_do_next(trained, capsys):
    report = demo.demo(trained / "results", trained / "runs")
    said = capsys.readouterr().out
    assert report.stat().st_size > 500_000
    assert str(report.resolve()) in said
    gallery = trained / "results" / "index.html"
    assert str(gallery.resolve()) in said
    assert f'href="reports/{report.name}"' in gallery.read_text()
    own = said.split("Your own checkpoints:\n")[1].strip().splitlines()
    assert len(own) == 3
    assert (ROOT / own[2].split()[0]).is_file()


def test_a_training_that_fails_is_not_passed_over(trained, monkeypatch):
    monkeypatch.setattr(demo.sys, "executable", shutil.which("false"))
    with pytest.raises(RuntimeError, match=r"attention-only --preset small .* failed"):
        demo.demo(trained / "results", trained / "runs")


def test_what_it_trains_is_a_preset_in_which_something_is_learned():
    name, _, preset, _, seed = demo.TRAIN
    assert f"{name}-{preset}-seed{seed}" == demo.LEARNER
    assert "emergence" in PRESETS[preset].numbers
