"""Runs in an object store (a real S3 server on loopback) and on a web server: found as on a disk, read by ranges."""

import json
import pickle
import sys

import pytest
import torch
from safetensors.torch import save
from typer.testing import CliRunner

from checkpoints import RunWriter, WeightsError, open_run
from checkpoints.audit import audit_hashes
from checkpoints.store import Store
from probes.__main__ import app
from tests.published_model import attention_bytes, expect, read_everything, revision, torch_saved
from tests.s3_server import s3_serving, web_serving

STEPS = (0, 10, 100)


@pytest.fixture(scope="module")
def s3():
    with s3_serving() as (address, counted):
        import s3fs

        system = s3fs.S3FileSystem(endpoint_url=address)
        system.mkdir("bucket")
        for kind in ("safetensors", "bin"):
            for step in STEPS:
                for name, content in revision(step, kind).items():
                    system.pipe_file(f"bucket/{kind}/step{step}/{name}", content)
        yield address, counted, system


@pytest.fixture
def store(s3, tmp_path):
    return Store(options={"endpoint_url": s3[0]}, cache=tmp_path / "cache", wait=0.001)


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_a_run_in_a_bucket_costs_little_more_than_its_attention_tensors(kind, s3, store):
    counted = s3[1]
    before = counted.body_bytes
    run = open_run(f"s3://bucket/{kind}", store=store)
    assert (run.steps, run.family, run.is_remote) == (list(STEPS), "gpt_neox", True)
    expect(read_everything(run))
    transferred = counted.body_bytes - before
    assert transferred <= 1.2 * attention_bytes(run)
    before = counted.body_bytes
    expect(read_everything(open_run(f"s3://bucket/{kind}", store=store)))
    assert counted.body_bytes - before < 20_000  # listings; all else is in the cache


def test_what_is_recognised_on_a_disk_is_recognised_in_a_bucket(s3, store, tmp_path):
    system = s3[2]
    with RunWriter(tmp_path / "mine", config={"n_heads": 2}) as writer:
        for step in (1, 2):
            writer.log(step, loss=1 / step)
            writer.save(step, {"w": torch.full((3,), float(step))})
    system.put(str(tmp_path / "mine"), "bucket/mine", recursive=True)
    run = open_run("s3://bucket/mine", store=store)
    assert run.steps == [1, 2]
    assert run.metrics["loss"].tolist() == [1.0, 0.5]
    assert run[2]["w"].tolist() == [2.0, 2.0, 2.0]

    state = {"global_step": 500, "log_history": [{"step": 500, "loss": 2.5}]}
    for name, content in {
        "checkpoint-500/model.safetensors": save({"w": torch.ones(2)}),
        "checkpoint-500/trainer_state.json": json.dumps(state).encode(),
        "checkpoint-500/optimizer.pt": b"never read",
    }.items():
        system.pipe_file(f"bucket/trainer/{name}", content)
    run = open_run("s3://bucket/trainer", store=store)
    assert (run.steps, run.metrics["loss"].tolist()) == ([500], [2.5])

    system.pipe_file("bucket/files/model_7.pt", torch_saved({"w": torch.ones(2) * 7}))
    system.pipe_file("bucket/files/model_8.pt", torch_saved({"w": torch.ones(2) * 8}))
    assert open_run("s3://bucket/files", store=store)[8]["w"].tolist() == [8.0, 8.0]
    assert open_run("s3://bucket/files/model_7.pt", store=store)[0]["w"].tolist() == [7.0, 7.0]


def test_an_object_that_was_written_anew_is_noticed_and_then_read_anew(s3, store):
    system = s3[2]
    system.pipe_file("bucket/anew/step1/model.safetensors", save({"a": torch.zeros(9), "b": torch.zeros(9)}))
    run = open_run("s3://bucket/anew", store=store)
    checkpoint = run.checkpoint(1)
    identity = run.entry(1).identity
    assert checkpoint["a"].tolist() == [0.0] * 9
    system.pipe_file("bucket/anew/step1/model.safetensors", save({"a": torch.ones(9), "b": torch.ones(9)}))
    with pytest.raises(WeightsError, match=r"s3://bucket/anew/step1/model\.safetensors: it was written anew"):
        checkpoint["b"]
    again = open_run("s3://bucket/anew", store=store)
    assert again[1]["b"].tolist() == [1.0] * 9
    assert again.entry(1).identity != identity


def test_a_run_in_a_bucket_can_be_sent_to_another_process(store):
    run = pickle.loads(pickle.dumps(open_run("s3://bucket/safetensors", store=store)))
    expect(read_everything(run))


def test_the_hashes_that_a_bucket_lists_show_final_weights_that_are_served_early(s3, store):
    _, counted, system = s3
    for step, value in {1: 1.0, 2: 2.0, 4: 9.0, 8: 3.0, 16: 9.0}.items():
        system.pipe_file(f"bucket/early/step{step}/model.safetensors", save({"w": torch.full((99,), value)}))
    run = open_run("s3://bucket/early", store=store)
    counted.requests.clear()
    found = audit_hashes(run)
    assert [(f.step, f.kind) for f in found.faults] == [(4, "final_weights")]
    assert "no weights were read" in found.summary
    assert not [path for method, path, _ in counted.requests if method == "GET" and path.endswith(".safetensors")]


def test_what_is_not_there_or_not_allowed_is_said_without_secrets(s3, tmp_path, monkeypatch):
    options = {"endpoint_url": s3[0], "key": "somebody", "secret": "kept-secret"}
    with pytest.raises(FileNotFoundError, match="s3://bucket/nothing does not exist"):
        open_run("s3://bucket/nothing", store=Store(options=options, cache=tmp_path))
    with pytest.raises(ValueError, match=r"s3://bucket holds \d runs, in .*safetensors.* Open one: open_run"):
        open_run("s3://bucket", store=Store(options=options, cache=tmp_path))
    with pytest.raises(ValueError, match=r"s3://bucket\.\.\.: credentials do not belong into an address") as caught:
        open_run("s3://somebody:kept-secret@bucket/nothing", store=Store(options=options, cache=tmp_path))
    assert "kept-secret" not in str(caught.value)
    monkeypatch.setattr("tests.s3_server.REFUSED", "refused")
    with pytest.raises(OSError, match=r"s3://bucket/refused.* cannot be .*\. Credentials are looked") as caught:
        open_run("s3://bucket/refused", store=Store(options=options, cache=tmp_path))
    assert "kept-secret" not in str(caught.value)
    with pytest.raises(ValueError, match="nosuch:// is not known"):
        open_run("nosuch://bucket/run", store=Store(cache=tmp_path))
    with pytest.raises(ValueError, match="store is for"):
        open_run(tmp_path, store=Store(cache=tmp_path))


def test_a_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "adlfs", None)
    with pytest.raises(ImportError, match=r"az:// needs a library .*checkpoint-probes\[remote\]"):
        open_run("az://container/run")
    result = CliRunner().invoke(app, ["audit", "az://container/run"])
    assert (result.exit_code, "az:// needs a library" in result.output) == (2, True)


def test_any_file_system_of_fsspec_will_do(tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    for step in (1, 2):
        memory.pipe_file(f"/run/step{step}/model.safetensors", save({"w": torch.ones(3) * step}))
    assert open_run("memory://run", store=Store(cache=tmp_path))[2]["w"].tolist() == [2.0, 2.0, 2.0]


@pytest.fixture
def published(tmp_path):
    for step in STEPS:
        (tmp_path / "web" / "run" / f"step{step}").mkdir(parents=True)
        for name, content in revision(step, "bin" if step else "safetensors").items():
            (tmp_path / "web" / "run" / f"step{step}" / name).write_bytes(content)
    return tmp_path / "web"


def test_a_run_on_a_web_server_is_read_by_ranges(published, tmp_path):
    with web_serving(published) as (address, counted):
        run = open_run(f"{address}/run/", store=Store(cache=tmp_path / "cache"))
        assert run.steps == list(STEPS)
        expect(read_everything(run))
        assert counted.body_bytes <= 1.2 * attention_bytes(run)
        with pytest.raises(FileNotFoundError, match="/nothing does not exist"):
            open_run(f"{address}/nothing", store=Store(cache=tmp_path / "cache"))


def test_a_web_server_without_ranges_costs_whole_files_and_that_is_said(published, tmp_path):
    with web_serving(published, ranges=False) as (address, counted):
        with pytest.warns(UserWarning, match=f"{address} sends no parts of files: they are fetched whole"):
            run = open_run(f"{address}/run", store=Store(cache=tmp_path / "cache"))
        expect(read_everything(run))
        whole = sum(len(content) for step in STEPS for content in revision(step).values())
        assert counted.body_bytes < 2.1 * whole  # the question for the first byte is answered with everything, too


def test_a_signed_address_is_read_and_never_shown(published, tmp_path):
    with web_serving(published) as (address, _):
        secret = "Signature=kept-secret"
        file = f"{address}/run/step0/model-00001-of-00002.safetensors?{secret}"
        run = open_run(file.replace("http://", "http://me:kept-secret@"), store=Store(cache=tmp_path / "cache"))
        assert len(run.checkpoint(0)) > 3
        shown = repr(run) + run.source + run.checkpoint(0).label + repr(run.checkpoint(0)) + run._repr_html_()
        assert "kept-secret" not in shown
        with pytest.raises(FileNotFoundError) as caught:
            open_run(f"{address}/none.safetensors?{secret}", store=Store(cache=tmp_path / "cache"))
        assert "kept-secret" not in str(caught.value)


def test_links_of_an_index_page_that_lead_elsewhere_are_no_entries():
    from checkpoints.web_index import _from_links

    page = """<a href="../">up</a><a href="step10/">s</a><a href="/run/step%2020/">s</a><a href="?C=N;O=D">sort</a>
    <a href="http://elsewhere/run/step30/">x</a><a href="step40/../../secret">y</a><a href="deep/er/">z</a>
    <a href="model.safetensors">m</a><a href="//[bad/">b</a><a>none</a>"""
    listed = _from_links(page, "http://host/run/")
    assert {name: found.is_dir for name, found in listed.items()} == {
        "step10": True,
        "step 20": True,
        "model.safetensors": False,
    }
