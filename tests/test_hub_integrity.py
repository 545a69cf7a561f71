"""What a hub sends is held to what it listed: hashes of whole files, one ETag over ranges, no token elsewhere."""

import json

import pytest
import torch
from safetensors.torch import save

from checkpoints import WeightsError, open_run
from checkpoints.hub import Hub
from tests.hub_server import HubServer, serving
from tests.published_model import torch_saved

TOKEN = "hf_" + "s" * 34
TENSORS = {"a": torch.arange(50_000.0), "b": torch.ones(3)}


@pytest.fixture
def server():
    files = {"config.json": json.dumps({"model_type": "none"}).encode(), "model.safetensors": save(TENSORS)}
    return HubServer("a/b", {"step1": files, "step2": dict(files)})


def test_content_that_changes_while_a_broken_download_is_taken_up_is_noticed(server, tmp_path):
    with serving(server) as address:
        run = open_run("hub:a/b", revisions="step1", hub=Hub(address, cache=tmp_path, wait=0.001))
        checkpoint = run.checkpoint(1)
        assert len(checkpoint) == 2  # the table of contents is read
        server.cut_after = [60_000]

        def replaced(handler, path):
            if not server.cut_after:  # the first part was sent, and the connection cut
                server.revisions["step1"]["model.safetensors"] = save({k: t + 1 for k, t in TENSORS.items()})
            return False

        server.tamper = replaced
        with pytest.raises(WeightsError, match=r"changed on the server|says that its content has the hash"):
            checkpoint["a"]
        assert not any(path.stat().st_size > 1000 for path in tmp_path.rglob("blobs/*/*"))  # nothing of either is kept


def test_a_small_file_must_have_the_hash_that_git_gives_it(server, tmp_path):
    listed = server.tree(next(iter(server.commits)))
    server.lies["tree"] = listed
    server.revisions["step1"]["config.json"] = json.dumps({"model_type": "some"}).encode()
    server.revisions["step2"]["config.json"] = server.revisions["step1"]["config.json"]

    def without_etag(handler, path):
        if not path.endswith("config.json"):
            return False
        content = server.revisions["step1"]["config.json"]
        handler.send(200, content)
        return True

    server.tamper = without_etag
    with serving(server) as address:
        with pytest.raises(WeightsError, match=r"config\.json: its content has the hash .* the hub lists"):
            open_run("hub:a/b", hub=Hub(address, cache=tmp_path))
        assert not [path for path in tmp_path.rglob("blobs/**/*") if path.is_file()]


def test_kept_bytes_that_do_not_parse_are_dropped_and_fetched_once_more(server, tmp_path):
    with serving(server) as address:
        hub = Hub(address, cache=tmp_path)
        run = open_run("hub:a/b", revisions="step1", hub=hub)
        assert torch.equal(run.checkpoint(1)["b"], torch.ones(3))
        for kept in tmp_path.rglob("blobs/*/0-8"):
            kept.write_bytes(b"<html>!!")
        assert torch.equal(run.checkpoint(1)["b"], torch.ones(3))
        for kept in tmp_path.rglob("blobs/*/0-8"):
            kept.write_bytes(bytes(8))
        with pytest.raises(WeightsError, match="filled with zeros"):
            open_run("hub:a/b", revisions="step1", hub=Hub(address, cache=tmp_path, offline=True)).checkpoint(1)["b"]
        assert list(tmp_path.rglob("blobs/*/0-8"))  # offline, nothing is dropped that cannot be fetched again


def test_a_token_goes_to_the_hub_and_not_where_it_points(server, tmp_path):
    elsewhere = HubServer("a/b", {})
    seen: list[str | None] = []

    def stored(handler, path):
        seen.append(handler.headers.get("Authorization"))
        content = server.revisions["step1"]["model.safetensors"]
        handler.send_file(content, '"elsewhere"')
        return True

    elsewhere.tamper = stored
    with serving(elsewhere) as other, serving(server) as address:

        def pointing(handler, path):
            if path.endswith("model.safetensors"):
                assert handler.headers.get("Authorization") == f"Bearer {TOKEN}"
                handler.send_response(302)
                handler.send_header("Location", f"{other.replace('127.0.0.1', 'localhost')}/cdn/x")
                handler.send_header("X-Linked-ETag", f'"{server.tree(next(iter(server.commits)))[1]["lfs"]["oid"]}"')
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return True
            return False

        server.tamper = pointing
        run = open_run("hub:a/b", revisions="step1", hub=Hub(address, cache=tmp_path, token=TOKEN))
        assert torch.equal(run.checkpoint(1)["a"], TENSORS["a"])
        assert seen
        assert set(seen) == {None}

        def going_on(handler, path):
            if "/tree/" in path:
                handler.send_response(200)
                handler.send_header("Link", f'<{other}/api/models/a/b/tree/next>; rel="next"')
                content = json.dumps(server.tree(path.split("/")[-1])).encode()
                handler.send_header("Content-Length", str(len(content)))
                handler.end_headers()
                handler.wfile.write(content)
                return True
            return False

        server.tamper = going_on
        before = len(seen)
        with pytest.raises(WeightsError, match="goes on at another server, after 2 files"):
            open_run("hub:a/b", hub=Hub(address, cache=tmp_path / "new", token=TOKEN))
        assert len(seen) == before


def test_kept_bytes_of_a_torch_file_that_do_not_parse_are_fetched_once_more(tmp_path):
    server = HubServer("a/b", {"step1": {"pytorch_model.bin": torch_saved(TENSORS)}})
    with serving(server) as address:
        run = open_run("hub:a/b", hub=Hub(address, cache=tmp_path))
        assert torch.equal(run.checkpoint(1)["a"], TENSORS["a"])
        for kept in tmp_path.rglob("blobs/*/*-*"):
            kept.write_bytes(bytes(kept.stat().st_size))
        assert torch.equal(run.checkpoint(1)["a"], TENSORS["a"])


def test_stages_of_a_repository_are_one_axis_or_opened_apart(tmp_path):
    names = ["stage1-step10-tokens1B", "stage1-step20-tokens2B", "stage2-ingredient1-step5-tokens1B"]
    names += ["stage2-ingredient2-step5-tokens1B"]
    files = {name: {"model.safetensors": save({"w": torch.full((2,), float(n))})} for n, name in enumerate(names)}
    server = HubServer("a/b", {"main": {"README.md": b"x"}, **files})
    with serving(server) as address:
        hub = Hub(address, cache=tmp_path)
        with pytest.warns(UserWarning, match="only stage1 is opened: what follows forks"):
            run = open_run("hub:a/b", hub=hub)
        assert run.steps == [10, 20]
        assert run.axis["tokens"].tolist() == [10**9, 2 * 10**9]
        with pytest.warns(UserWarning, match="stage2-ingredient2 counts anew, 20 is added"):
            run = open_run("hub:a/b", revisions="stage1-*,stage2-ingredient2-*", hub=hub)
        assert run.axis["stage"].tolist() == ["stage1", "stage1", "stage2-ingredient2"]
        assert run.steps == [10, 20, 25]
        assert run[25]["w"].tolist() == [3.0, 3.0]
