"""Searches run on one thread, whatever the caller has, and give the caller's back."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

import probes
from probes.series.online import detection
from probes.series.transitions import find
from probes.threads import one_thread


def most_threads() -> int:
    return max(torch.get_num_threads(), *(library["num_threads"] for library in threadpool_info()))


@pytest.fixture
def two_threads():
    with threadpool_limits(2):
        torch.set_num_threads(2)
        assert most_threads() == 2
        yield
        assert most_threads() == 2
        torch.set_num_threads(1)


def fail():
    assert most_threads() == 1
    raise RuntimeError("planted")


def test_threads_come_back_when_something_is_raised(two_threads):
    with pytest.raises(RuntimeError, match="planted"), one_thread():
        fail()


@pytest.mark.parametrize(("values", "name"), [(60, "search_short"), (400, "search_long")])
def test_find_transitions_searches_on_one(two_threads, monkeypatch, values, name):
    seen, search = [], getattr(find, name)

    def noted(*arguments):
        seen.append(most_threads())
        return search(*arguments)

    monkeypatch.setattr(find, name, noted)
    found = probes.find_transitions((np.arange(values) < values / 2) + 0.01 * np.sin(np.arange(values) ** 2))
    assert list(found["kind"])[:1] == ["cliff"]
    assert seen == [1]


def test_a_monitor_that_looks_while_others_train_does_so_on_one(two_threads, monkeypatch):
    seen, search = [], detection.search_values

    def noted(*arguments, **how):
        seen.append(most_threads())
        return search(*arguments, **how)

    monkeypatch.setattr(detection, "search_values", noted)
    detector = detection.Detector("loss")
    for step in range(1, 120):
        detector.add(step, float(step < 60) + 0.01 * np.sin(step**2))
        if detector.is_due(step):
            detector.look(step)
    assert set(seen) == {1}
