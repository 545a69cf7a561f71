"""Files changed at random, where it hurts: every reader gives the right data or an error that names the file.

A few of each format; `make fuzz` goes on for three minutes. What fuzzing once found is in `test_refused_metrics.py`,
`test_refused_files.py` and `test_torch_file.py`, a test each.
"""

import random
import tracemalloc

import pytest

from checkpoints import WeightsError
from checkpoints.files.by_name import open_by_name
from tests.fuzz import corpus, forms
from tests.fuzz.forms import FORMS, Form
from tests.fuzz.judge import Fuzzer, Violation
from tests.fuzz.mutations import bytes_changed
from tests.torch_archives import Bytes

OF_WEIGHTS = {"torch", "torch, its pickle", "torch before 1.6", "safetensors", "npz", "msgpack", "torch.distributed"}
SELDOM_REFUSED = {"a run that is watched", "partial results"}  # what is damaged is said, or computed again


@pytest.fixture
def fuzzer(tmp_path, monkeypatch):
    monkeypatch.setattr("checkpoints.files.pickles.FLOOR", 500_000)
    with Fuzzer(tmp_path) as fuzzer:
        yield fuzzer


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore")
def test_a_changed_input_is_read_right_or_refused_by_name(form, fuzzer, seeds):
    fuzzer.try_whole(form)
    if form in OF_WEIGHTS:
        tracemalloc.start()
    try:
        count = FORMS[form].weight * max(seeds, 4)
        refused = sum(not fuzzer.try_one(form, number) for number in range(count))
    finally:
        tracemalloc.stop()
    # many changes matter: a reader that takes everything would not be found out otherwise
    assert refused > 0.1 * count or form in SELDOM_REFUSED


def reads(folder):
    return (folder / "x").read_bytes()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (KeyError("step"), "KeyError"),
        (ValueError("no"), "names no file"),
        (ValueError("fuzzed-input" * 500), "characters"),
        (RecursionError(), "RecursionError"),
    ],
)
def test_a_reader_that_breaks_is_found_out_and_its_input_kept(tmp_path, monkeypatch, fault, said):
    """The check of the check."""

    def breaks(folder):
        if reads(folder) != b"whole":
            raise fault

    monkeypatch.setitem(
        FORMS, "broken", Form(lambda: {"x": b"whole"}, lambda f, r: {"x": bytes_changed(f["x"], r)}, breaks)
    )
    with Fuzzer(tmp_path) as fuzzer:
        fuzzer.try_whole("broken")
        with pytest.raises(Violation, match=said):
            fuzzer.try_one("broken", 0)
    assert list(tmp_path.glob("broken-*/x"))


def test_wrong_data_are_found_out(tmp_path, monkeypatch):
    whole = FORMS["metrics.csv"]
    monkeypatch.setitem(
        FORMS, "wrong", Form(whole.files, whole.change, lambda folder: whole.read(folder) + 1, whole.check)
    )
    with Fuzzer(tmp_path) as fuzzer, pytest.raises(Violation, match="in the file it is"):
        fuzzer.try_whole("wrong")


def test_the_changes_reach_what_would_run():
    """The check of the check: among changed pickles some name functions that unpickling would call."""
    content, rng, reasons = corpus.torch_saved(), random.Random(1), set()
    for _ in range(100):
        try:
            dict(open_by_name("model.pt", Bytes(forms.in_pickle(content, rng), "model.pt")))
        except WeightsError as error:
            reasons.add("asks for" if "asks for" in str(error) else "other")
    assert reasons == {"asks for", "other"}
