"""Servers that lie, dawdle, change their minds and never end: right data or one named error, soon, and nothing kept.

Every script is played to a client with a new cache. Whatever came of it, the same cache then meets an honest server and
must give the right tensors: what a hostile one sent must not have stayed.
"""

import json
import time

import pytest
import torch

from checkpoints import open_run
from checkpoints.download import ContentChangedError
from checkpoints.hub import Hub
from tests.hostile_scripts import API, FILE, HARMLESS, REPOSITORY, TENSORS, WEIGHTS, only
from tests.hub_server import HubServer, serving

FILES = {"config.json": json.dumps({"model_type": "none"}).encode(), "model.safetensors": WEIGHTS}
TOKEN = "hf_" + "s" * 34


@pytest.fixture(scope="module")
def server():
    return HubServer(REPOSITORY, {"step1": FILES})


@pytest.fixture(scope="module")
def address(server):
    with serving(server) as address:
        yield address


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    monkeypatch.setattr("checkpoints.patience.LONGEST_ANSWER", 10**6)
    monkeypatch.setattr("checkpoints.hub.MOST_PAGES", 20)


def read(address, cache, **settings):
    run = open_run(f"hub:{REPOSITORY}", hub=Hub(address, cache=cache, token=TOKEN, **settings))
    checkpoint = run.checkpoint(1)
    return {name: checkpoint[name] for name in ("a", "c")}


def expect_right(found):
    assert torch.equal(found["a"], TENSORS["a"])
    assert torch.equal(found["c"], TENSORS["c"])


def played(server, address, tmp_path, tamper, expected):
    """The script is refused by name, within seconds; then an honest server finds a cache that holds no lie."""
    began = time.monotonic()
    server.tamper = tamper
    try:
        with pytest.raises((OSError, ValueError), match=expected) as caught:
            read(address, tmp_path, wait=0.0005, timeout=3 if expected == "redirect" else 0.1)
    finally:
        server.tamper = None
    assert time.monotonic() - began < 10
    assert "body" in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert len(str(caught.value)) < 1000
    try:
        found = read(address, tmp_path)
    except ContentChangedError:  # it is noticed that what was kept is of another content
        found = read(address, tmp_path)
    expect_right(found)


@pytest.mark.parametrize("script", API)
def test_an_answer_of_the_api_is_right_or_refused(script, server, address, tmp_path):
    part, play, expected = API[script]
    played(server, address, tmp_path, only(part)(play), expected)


@pytest.mark.parametrize("script", FILE)
@pytest.mark.filterwarnings("ignore:.*sends no parts of files")
def test_a_file_is_right_or_refused(script, server, address, tmp_path):
    play, expected = FILE[script]
    played(server, address, tmp_path, only("model.safetensors")(play), expected)


@pytest.mark.parametrize("script", HARMLESS)
@pytest.mark.filterwarnings("ignore:.*sends no parts of files")
def test_what_is_odd_and_harmless_is_read(script, server, address, tmp_path):
    server.tamper = only("model.safetensors")(HARMLESS[script])
    try:
        expect_right(read(address, tmp_path, wait=0.001))
    finally:
        server.tamper = None
    expect_right(read(address, tmp_path))
