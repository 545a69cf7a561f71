"""The hostile scripts of a hub played by a web server, and by one that lists what it should not."""

import pytest
import torch

from checkpoints import open_run
from checkpoints.store import Store
from tests.hostile_scripts import FILE, HARMLESS, TENSORS, only
from tests.hub_server import HubServer, serving

INDEX = b'<html><a href="../">up</a><a href="step1/">step1/</a></html>'
FOLDER = b'<html><a href="model.safetensors">m</a></html>'
ANOTHER_ETAG = {"another hash than it listed"}  # a web server lists no hashes
WEB_PAGES = {name for name, (_, said) in FILE.items() if said == "web page"}


@pytest.fixture(scope="module")
def server():
    return HubServer("web/server", {"main": {}})


@pytest.fixture(scope="module")
def address(server):
    with serving(server) as address:
        yield address


def honest_folders(play):
    """Index pages as they should be; the script answers for the file."""

    def tamper(handler, path):
        if path.endswith("model.safetensors"):
            return only("model.safetensors")(play)(handler, path)
        page = {"run": INDEX, "run/step1": FOLDER}.get(path)
        if page is None:
            return False
        handler.send_response(200)
        handler.send_header("Content-Type", "text/html")
        handler.send_header("Content-Length", str(len(page)))
        handler.end_headers()
        handler.wfile.write(page)
        return True

    return tamper


def read(address, cache, **settings):
    checkpoint = open_run(f"{address}/run/", store=Store(cache=cache, **settings)).checkpoint(1)
    return {name: checkpoint[name] for name in ("a", "c")}


@pytest.mark.parametrize("script", sorted(FILE.keys() - ANOTHER_ETAG))
@pytest.mark.filterwarnings("ignore:.*sends no parts of files")
def test_a_file_is_right_or_refused(script, server, address, tmp_path):
    """What another server would give for this file nobody listed: only what contradicts itself can be refused."""
    play, said = FILE[script]
    server.tamper = honest_folders(play)
    if said == "has the hash":  # another file, whole: it is what there is
        assert read(address, tmp_path)["a"][0] == 1.0
        return
    with pytest.raises((OSError, ValueError)) as caught:
        read(address, tmp_path, wait=0.0005, timeout=3 if said == "redirect" else 0.1)
    assert "/run/step1" in str(caught.value)
    assert len(str(caught.value)) < 1000
    if script in WEB_PAGES:
        assert "web page" in str(caught.value)


@pytest.mark.parametrize("script", HARMLESS)
@pytest.mark.filterwarnings("ignore:.*sends no parts of files")
def test_what_is_odd_and_harmless_is_read(script, server, address, tmp_path):
    server.tamper = honest_folders(HARMLESS[script])
    if script == "a total that is not said":
        with pytest.raises(ValueError, match="makes no sense"):  # nothing else says how long the file is
            read(address, tmp_path, wait=0.001)
        return
    found = read(address, tmp_path, wait=0.001)
    assert torch.equal(found["a"], TENSORS["a"])
    assert torch.equal(found["c"], TENSORS["c"])
