"""A hub repository with one revision per step, read by byte ranges: what is transferred, kept, retried and refused."""

import hashlib
import io
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from checkpoints import WeightsError, open_run
from checkpoints.download import Download
from checkpoints.hub import Hub, HubFile
from checkpoints.range_cache import merged
from tests.hub_server import HubServer, serving
from tests.published_model import attention_bytes, expect, read_everything, revision

REPOSITORY = "somebody/small-model"
STEPS = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]


@pytest.fixture(scope="module")
def published():
    return {"main": {"README.md": b"hello"}, **{f"step{step}": revision(step) for step in STEPS}}


@pytest.fixture
def server(published):
    return HubServer(REPOSITORY, dict(published))


def commit_of(revision: str) -> str:
    return hashlib.sha1(revision.encode()).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_twelve_revisions_cost_little_more_than_their_attention_tensors(kind, tmp_path):
    published = {f"step{step}": revision(step, kind) for step in STEPS}
    server = HubServer(REPOSITORY, published)
    with serving(server) as address:
        run = open_run(f"hub:{REPOSITORY}", revisions="step*", hub=Hub(address, cache=tmp_path / "cache"))
        assert run.steps == STEPS
        assert run.family == "gpt_neox"
        found = read_everything(run)
        transferred = server.body_bytes
        expect(found)
        assert transferred <= 1.2 * attention_bytes(run)
        assert transferred < sum(len(c) for files in published.values() for c in files.values()) / 2
        before = len(server.requests)
        read_everything(run)
        assert len(server.requests) == before  # all of it is in the cache


def test_a_connection_cut_in_the_middle_is_taken_up_where_it_broke(server, published, tmp_path):
    with serving(server) as address:
        hub = Hub(address, cache=tmp_path / "cache", wait=0.001)
        run = open_run(f"hub:{REPOSITORY}", revisions="step512", hub=hub)
        _ = run.heads
        before = server.body_bytes
        server.cut_after = [1000, 0, 5000, 7]
        expect(read_everything(run))
        assert server.cut_after == []
        assert server.body_bytes - before <= 1.05 * attention_bytes(run)  # nothing was fetched twice


def test_a_download_that_was_killed_is_taken_up_by_the_next_process(server, published, tmp_path):
    with serving(server) as address:
        run = open_run(f"hub:{REPOSITORY}", revisions="step8", hub=Hub(address, cache=tmp_path / "cache", wait=0.0001))
        _ = run.heads
        server.cut_after = [20_000, *[0] * 100]
        with pytest.raises(OSError, match="What was fetched is kept; try again"):
            read_everything(run)
        assert any(path.stat().st_size == 20_000 for path in (tmp_path / "cache").rglob("*.partial"))
        server.cut_after, before = [], server.body_bytes
        later = open_run(f"hub:{REPOSITORY}", revisions="step8", hub=Hub(address, cache=tmp_path / "cache"))
        expect(read_everything(later))
        assert server.body_bytes - before < attention_bytes(later) - 10_000
        assert not list((tmp_path / "cache").rglob("*.partial"))


def test_a_busy_server_is_asked_again_and_an_absent_one_is_named(server, tmp_path):
    with serving(server) as address:
        server.busy = 2
        run = open_run(f"hub:{REPOSITORY}", revisions="step*", hub=Hub(address, cache=tmp_path / "a", wait=0.001))
        assert len(run.steps) == 12
        with pytest.raises(OSError, match=r"hub:somebody/nothing .*cannot be fetched"):
            open_run("hub:somebody/nothing", hub=Hub(address, cache=tmp_path / "a", wait=0.001))
        with pytest.raises(ValueError, match=r"no revision with a step that matches 'epoch\*'.*main, step0"):
            open_run(f"hub:{REPOSITORY}", revisions="epoch*", hub=Hub(address, cache=tmp_path / "a"))
    with pytest.raises(OSError, match="cannot be fetched from http://127"):
        open_run(f"hub:{REPOSITORY}", hub=Hub(address, cache=tmp_path / "b", wait=0.0001))


def test_offline_with_a_warm_cache_works_and_with_a_cold_one_says_what_is_missing(server, published, tmp_path):
    with serving(server) as address:
        cache = tmp_path / "cache"
        read_everything(open_run(f"hub:{REPOSITORY}", revisions="step[12]", hub=Hub(address, cache=cache)))
        before = len(server.requests)
        run = open_run(f"hub:{REPOSITORY}", revisions="step[12]", hub=Hub(address, cache=cache, offline=True))
        expect(read_everything(run))
        assert len(server.requests) == before
        cold = open_run(f"hub:{REPOSITORY}", revisions="step[12]", hub=Hub(address, cache=cache, offline=True))
        with pytest.raises(FileNotFoundError, match="offline"):
            cold.checkpoint(1)["gpt_neox.embed_in.weight"]
        with pytest.raises(FileNotFoundError, match=r"refs\.json is not in the cache .* and this is offline"):
            open_run(f"hub:{REPOSITORY}", hub=Hub(address, cache=tmp_path / "empty", offline=True))


@pytest.mark.filterwarnings("ignore:.*sends no parts of files")
def test_a_server_without_ranges_costs_whole_files_once(server, published, tmp_path):
    server.ignores_ranges = True
    with serving(server) as address:
        run = open_run(f"hub:{REPOSITORY}", revisions="step64", hub=Hub(address, cache=tmp_path / "cache"))
        expect(read_everything(run))
        whole = sum(len(content) for content in published["step64"].values())
        found_out = len(published["step64"]["model-00001-of-00002.safetensors"])  # by asking for its first bytes
        assert server.body_bytes < whole + found_out + 20_000  # trees and refs besides


def test_the_cache_stays_below_its_limit_and_can_be_cleared(server, published, tmp_path):
    with serving(server) as address:
        hub = Hub(address, cache=tmp_path / "cache", limit=400_000)
        run = open_run(f"hub:{REPOSITORY}", revisions="step*", hub=hub)
        expect(read_everything(run))
        assert server.body_bytes > 1_500_000
        kept = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file())
        assert kept <= 400_000
        assert hub.clear() > 0
        assert not (tmp_path / "cache").exists()


def test_without_locks_those_who_want_the_same_fetch_it_each_for_themselves(server, published, tmp_path, monkeypatch):
    monkeypatch.setattr("checkpoints.range_cache.fcntl", None)
    with serving(server) as address:
        hub = Hub(address, cache=tmp_path / "cache", wait=0.001)
        run = open_run(f"hub:{REPOSITORY}", revisions="step16", hub=hub)
        _ = run.heads
        began = threading.Barrier(4)
        append_to = Download.append_to

        def together(download, *arguments):
            began.wait(10)  # until all four have looked and seen that it is not there
            return append_to(download, *arguments)

        monkeypatch.setattr(Download, "append_to", together)
        place = run.checkpoint(16).stored["gpt_neox.embed_in.weight"].file
        file = next(f for f in hub.files(REPOSITORY, commit_of("step16")).values() if f.path == Path(place).name)
        with ThreadPoolExecutor(4) as pool:
            reads = [pool.submit(hub.read, REPOSITORY, commit_of("step16"), file, 100, 9000) for _ in range(4)]
        for read in reads:
            assert read.result().tobytes() == published["step16"][file.path][100:9000]
    assert not list((tmp_path / "cache").rglob("*.partial"))


@pytest.mark.slow
def test_everything_can_be_imported_and_written_where_there_is_no_fcntl(tmp_path):
    code = (
        "import sys; sys.modules['fcntl'] = None; import checkpoints, checkpoints.hub, torch, probes\n"
        "with checkpoints.RunWriter(sys.argv[1]) as writer: writer.save(3, {'w': torch.ones(1)})\n"
        "print(checkpoints.open_run(sys.argv[1]).steps)"
    )
    out = subprocess.run([sys.executable, "-c", code, tmp_path / "run"], capture_output=True, text=True, check=True)
    assert out.stdout == "[3]\n"


@pytest.mark.filterwarnings("ignore:.*nothing says whether the numbers")
def test_older_transformer_lens_repositories_are_runs_of_numbered_files(tmp_path):
    def file(number: int) -> bytes:
        torch.manual_seed(number)
        state = {f"blocks.0.attn.W_{x}": torch.randn(2, 8, 4) for x in "QKV"} | {
            "blocks.0.attn.W_O": torch.randn(2, 4, 8)
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        return buffer.getvalue()

    files = {f"checkpoints/SoLU_1L_{number:09d}.pth": file(number) for number in (100, 200)}
    files["config.json"] = json.dumps({"n_heads": 2, "d_model": 8, "d_head": 4, "n_layers": 1}).encode()
    with serving(HubServer("old/attn", {"main": files})) as address:
        run = open_run("hub:old/attn", hub=Hub(address, cache=tmp_path / "cache"))
        assert run.steps == [100, 200]
        torch.manual_seed(200)
        assert torch.equal(run.heads.read(run.checkpoint(200), 0).W_Q, torch.randn(2, 8, 4))
    for path, content in files.items():  # the same repository, copied to a disk
        (tmp_path / "copy" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / path).write_bytes(content)
    assert open_run(tmp_path / "copy").steps == [100, 200]


@pytest.mark.parametrize("lie", ["../../../escaped", "/tmp/escaped", "abc", 7, "A" * 64])
def test_a_server_cannot_make_us_write_outside_the_cache(server, tmp_path, lie):
    """Hashes become paths, so a hash that is none is refused; names of files never become paths."""
    server.lies["refs"] = {
        "branches": [{"name": "step1", "ref": "refs/heads/step1", "targetCommit": lie}],
        "tags": [],
        "converts": [],
    }
    with (
        serving(server) as address,
        pytest.raises(WeightsError, match="where the hash of a commit or a file is expected"),
    ):
        open_run(f"hub:{REPOSITORY}", revisions="step*", hub=Hub(address, cache=tmp_path / "cache"))
    del server.lies["refs"]
    server.lies["tree"] = [{"type": "file", "path": "../../escaped", "size": 3, "oid": lie}]
    with (
        serving(server) as address,
        pytest.raises(WeightsError, match="where the hash of a commit or a file is expected"),
    ):
        open_run(f"hub:{REPOSITORY}", revisions="step*", hub=Hub(address, cache=tmp_path / "cache"))
    assert {path.name for path in tmp_path.iterdir()} == {"cache"}


def test_a_file_whose_content_is_not_what_the_hub_lists_is_refused_and_not_kept(tmp_path):
    buffer = io.BytesIO()
    torch.save({"w": torch.zeros(3)}, buffer)
    server = HubServer("a/b", {"step1": {"pytorch_model.bin": buffer.getvalue()}})
    real = server.tree(next(iter(server.commits)))
    real[0]["lfs"]["oid"] = "0" * 64
    server.lies["tree"] = real
    with serving(server) as address:
        run = open_run("hub:a/b", hub=Hub(address, cache=tmp_path / "cache"))
        with pytest.raises(WeightsError, match=r"pytorch_model\.bin: the server now says .* and it listed 0000"):
            len(run.checkpoint(1))
    assert not [path for path in (tmp_path / "cache").rglob("blobs/**/*") if path.is_file()]


def test_a_cache_file_that_was_cut_short_is_fetched_again(server, published, tmp_path):
    with serving(server) as address:
        run = open_run(f"hub:{REPOSITORY}", revisions="step4", hub=Hub(address, cache=tmp_path))
        read_everything(run)
        for file in tmp_path.rglob("blobs/*/*"):
            if file.stat().st_size > 1000:
                file.write_bytes(file.read_bytes()[:-7])
        expect(read_everything(run))


def test_two_servers_do_not_share_a_cache(server, published, tmp_path):
    """A server that lists the true hashes and serves other bytes must not spoil the true one's."""
    evil = HubServer(REPOSITORY, {"step4": {k: v for k, v in published["step4"].items()}})
    listed = evil.tree(next(iter(evil.commits)))
    evil.lies["tree"] = listed
    evil.lies["etag"] = '"always the same"'
    evil.revisions["step4"] = {
        k: v[:-5000] + b"\1" * 5000 if k.endswith("safetensors") else v for k, v in published["step4"].items()
    }
    with serving(evil) as address:
        read_everything(open_run(f"hub:{REPOSITORY}", revisions="step4", hub=Hub(address, cache=tmp_path)))
    with serving(server) as address:
        expect(read_everything(open_run(f"hub:{REPOSITORY}", revisions="step4", hub=Hub(address, cache=tmp_path))))


@pytest.mark.parametrize(
    "answer", [[{"type": "file", "path": "x"}], [{"type": "file", "path": "x", "size": "12", "oid": "0" * 40}], 7]
)
def test_answers_that_make_no_sense_are_refused(server, tmp_path, answer):
    server.lies["tree"] = answer
    with serving(server) as address, pytest.raises((WeightsError, OSError), match="small-model"):
        open_run(f"hub:{REPOSITORY}", revisions="step4", hub=Hub(address, cache=tmp_path, wait=0.0001))


def test_close_ranges_are_fetched_together_and_distant_ones_are_not():
    assert merged([(0, 1000), (1010, 2000)]) == [(0, 2000)]
    assert merged([(0, 1000), (1500, 2000)]) == [(0, 1000), (1500, 2000)]
    assert merged([(10**8, 2 * 10**8), (0, 10**8 - 10**6)]) == [(0, 10**8 - 10**6), (10**8, 2 * 10**8)]


def test_a_range_outside_the_file_is_refused(tmp_path):
    hub = Hub("http://127.0.0.1:9", cache=tmp_path)
    with pytest.raises(WeightsError, match="has 10 bytes: 4 to 11 is outside"):
        hub.read("a/b", "0" * 40, HubFile("x", 10, "0" * 40, False), 4, 11)
    assert list(Path(tmp_path).iterdir()) == []
