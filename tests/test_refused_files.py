"""Whatever is broken, lying or malicious is refused by name; nothing of it runs and nothing is written."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save, save_file

from checkpoints import WeightsError, open_run
from checkpoints.hub import Hub
from tests.small_gpt2 import expect_heads, sharded, state


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("form", ["zip", "legacy", "raw pickle", "nested"])
def test_a_malicious_pickle_never_executes_and_is_named(tmp_path, form):
    file, witness = tmp_path / "model.pt", tmp_path / "executed"
    evil = Evil(witness)
    if form == "raw pickle":
        file.write_bytes(pickle.dumps({"w": evil}))
    else:
        content = {"model": {"w": torch.zeros(2)}, "config": evil} if form == "nested" else {"w": evil}
        torch.save(content, file, _use_new_zipfile_serialization=form != "legacy")
    with pytest.raises(WeightsError, match=r"model\.pt is refused and nothing of it was run: .*(posix\.system|system)"):
        open_run(file)
    assert not witness.exists()
    pickle.loads(pickle.dumps(evil))  # the trap is real: unpickling it does execute
    assert witness.exists()


def good() -> bytes:
    return save({"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4)})


def with_table(table: dict | str, data: bytes = b"\0" * 40) -> bytes:
    text = table if isinstance(table, str) else json.dumps(table)
    return struct.pack("<Q", len(text)) + text.encode() + data


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
SCALAR = {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}
BROKEN = {
    "empty": (b"", "it is empty"),
    "cut in the table": (good()[:20], "cut short"),
    "cut in the data": (good()[:-3], "cut short"),
    "cut to five bytes": (good()[:5], "cut short"),
    "zero-filled": (b"\0" * 500, "filled with zeros"),
    "wrong byte order": (struct.pack(">Q", len(good()) - 48) + good()[8:], "wrong byte order"),
    "something else": (b"PK\x03\x04 this is a zip file, or claims to be one", "not a safetensors file"),
    "not json": (with_table("{nonsense"), "not JSON"),
    "a list": (with_table("[1, 2]"), "not a table"),
    "a name twice": (
        with_table(f'{{"w": {json.dumps(ENTRY)}, "w": {json.dumps({**ENTRY, "data_offsets": [8, 16]})}}}', b"\0" * 16),
        "lists 'w' twice",
    ),
    "overlap": (with_table({"a": ENTRY, "b": {**ENTRY, "data_offsets": [4, 12]}}, b"\0" * 12), "overlap or hole"),
    "hole": (with_table({"a": ENTRY, "b": {**ENTRY, "data_offsets": [12, 20]}}, b"\0" * 20), "overlap or hole"),
    "size and shape": (with_table({"a": {**ENTRY, "shape": [3]}}, b"\0" * 8), "cannot have 8 bytes"),
    "negative": (with_table({"a": {**ENTRY, "shape": [-2]}}, b"\0" * 8), "not all whole numbers"),
    "unknown dtype": (with_table({"a": {**ENTRY, "dtype": "Q7"}}, b"\0" * 8), "dtype 'Q7'"),
    "trailing bytes": (good() + b"extra", "followed by something else"),
    "a dtype that is a list": (with_table({"a": {**ENTRY, "dtype": ["F32"]}}, b"\0" * 8), "dtype"),
    "brackets without end": (with_table("[" * 200_000), "not JSON"),
    "offsets beyond files": (with_table({"a": {**ENTRY, "data_offsets": [0, 10**25]}}, b"\0" * 8), "a file can hold"),
    "a shape of many digits": (with_table({"a": {**ENTRY, "shape": [10**4000] * 90}}, b"\0" * 8), "a file can hold"),
    "digits without end": (with_table('{"a": ' + "9" * 5000 + "}", b""), "not JSON"),
    "not text": (with_table("{}")[:8] + b"\xff\xfe", "not JSON"),
    "lists without end": (with_table('{"a": [' + "[]," * 300_000 + "[]]}", b""), "far more entries"),
    "a shape that is text": (with_table({"a": {**SCALAR, "shape": ""}}, b"\0" * 4), "a file can hold"),
    "a shape that is a table": (with_table({"a": {**SCALAR, "shape": {}}}, b"\0" * 4), "a file can hold"),
    "half a character": (with_table({"a": {**SCALAR, "\ud800": 1}}, b"\0" * 4), "half a character"),
    "no offsets": (with_table({"a": {"dtype": "F32"}}, b""), "not described by"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_safetensors_file_is_refused_by_name(tmp_path, fault):
    content, reason = BROKEN[fault]
    (tmp_path / "step1.safetensors").write_bytes(content)
    (tmp_path / "step2.safetensors").write_bytes(good())
    run = open_run(tmp_path)
    with pytest.raises(WeightsError, match=rf"step1\.safetensors cannot be read: .*{reason}"):
        _ = run.checkpoint(1).stored
    assert torch.equal(run.checkpoint(2)["w"], torch.arange(6.0).reshape(2, 3))


def test_half_a_character_is_no_name_of_a_tensor_and_wrappers_without_end_are(tmp_path):
    torch.save({"\ud800": torch.ones(1)}, tmp_path / "a.pt")
    (tmp_path / "a.safetensors").write_bytes(with_table({"\ud800": SCALAR}, b"\0" * 4))
    for name in ("a.pt", "a.safetensors"):
        with pytest.raises(WeightsError, match=rf"{name} cannot be read: .*not text"):
            dict(open_run(tmp_path / name).checkpoint(0))
    (tmp_path / "b.safetensors").write_bytes(with_table({"module." * 5000 + "w": SCALAR}, b"\0" * 4))
    assert list(open_run(tmp_path / "b.safetensors").checkpoint(0)) == ["w"]


def test_tens_of_thousands_of_names_are_compared_in_linear_time(tmp_path):
    """One name is there twice; comparing all with all took 7 s for these, and grew with the square."""
    import time

    names = [f"name{i}" for i in range(20_000)] + ["name19999"]
    text = "{" + ",".join(f'"{name}": {json.dumps(ENTRY)}' for name in names) + "}"
    (tmp_path / "model.safetensors").write_bytes(with_table(text))
    start = time.process_time()
    with pytest.raises(WeightsError, match="lists 'name19999' twice"):
        _ = open_run(tmp_path).checkpoint(0).stored
    assert time.process_time() - start < 2


def test_whole_files_are_read_as_the_formats_own_library_reads_them(tmp_path):
    """The check of the checks: what the library accepts and writes, we accept and read the same."""
    save_file(state(5), tmp_path / "model.safetensors", metadata={"format": "pt"})
    theirs, ours = load_file(tmp_path / "model.safetensors"), open_run(tmp_path).checkpoint(0)
    assert set(theirs) == set(ours)
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


@pytest.mark.parametrize("content", [b"", b"\0" * 3000, b"not a pickle at all"])
def test_a_broken_torch_file_is_refused_by_name(tmp_path, content):
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(WeightsError, match=r"model\.pt (cannot be read|is refused)"):
        open_run(tmp_path / "model.pt")


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_a_truncated_torch_file_is_refused_by_name(tmp_path, keep):
    torch.save(state(), tmp_path / "model.pt")
    content = (tmp_path / "model.pt").read_bytes()
    (tmp_path / "model.pt").write_bytes(content[: int(keep * len(content))])
    with pytest.raises(WeightsError, match=r"model\.pt (cannot be read|is refused)"):
        open_run(tmp_path / "model.pt")


def test_a_torch_file_of_something_else_says_what_it_holds(tmp_path):
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(WeightsError, match=r"list\.pt holds a list, not a state dict"):
        open_run(tmp_path / "list.pt")
    torch.save({"lr": 0.1, "epoch": 3}, tmp_path / "settings.pt")
    with pytest.raises(WeightsError, match=r"settings\.pt holds no tensors by name, only lr, epoch"):
        open_run(tmp_path / "settings.pt")


def rewritten(file: Path, change) -> None:
    """The archive with its entries passed through `change`: (name, content) to a list of (ZipInfo or name, content)."""
    with zipfile.ZipFile(file) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for entry in entries:
            for name, content in change(*entry):
                archive.writestr(name, content)
    file.write_bytes(buffer.getvalue())


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ("../../escaped", "leads outside"),
        ("/tmp/escaped-absolute", "leads outside"),
        ("..\\escaped", "leads outside"),
        (link("archive/link"), "symbolic link"),
        ("archive/version", "twice"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_with_path_tricks_is_refused_and_nothing_is_written(tmp_path, extra, reason):
    torch.save(state(), tmp_path / "archive.pt")
    rewritten(
        tmp_path / "archive.pt", lambda n, c: [(n, c), (extra, b"/etc/passwd")] if n.endswith("version") else [(n, c)]
    )
    with pytest.raises(WeightsError, match=rf"archive\.pt is refused: .*{reason}"):
        open_run(tmp_path / "archive.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["archive.pt"]


def test_an_index_that_names_paths_outside_its_folder_is_refused(tmp_path):
    table = sharded(tmp_path / "step3", state(3))
    save_file(state(3), tmp_path / "outside.safetensors")
    name = sorted(table["weight_map"])[0]
    index = tmp_path / "step3" / "model.safetensors.index.json"
    for trick in ("../outside.safetensors", str(tmp_path / "outside.safetensors"), "..\\outside.safetensors", "C:x"):
        index.write_text(json.dumps({"weight_map": table["weight_map"] | {name: trick}}))
        with pytest.raises(WeightsError, match=r"index\.json is refused: it names .*leads out of its folder"):
            open_run(tmp_path / "step3")
    index.write_text(json.dumps({"weight_map": dict.fromkeys(table["weight_map"], "link.safetensors")}))
    (tmp_path / "step3" / "link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    snapshot = tmp_path / "models--a--b" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to(tmp_path / "models--a--b" / "elsewhere")
    save_file(state(3), tmp_path / "models--a--b" / "elsewhere")
    with pytest.raises(WeightsError, match="a link that leads out"):
        open_run(snapshot)
    with pytest.raises(WeightsError, match=r"'link\.safetensors', a link that leads out"):
        open_run(tmp_path / "step3").checkpoint(3)


def test_an_index_that_lies_is_refused_and_the_shards_alone_can_be_read(tmp_path):
    folder = tmp_path / "step3"
    table = sharded(folder, state(3))
    index, names = folder / "model.safetensors.index.json", sorted(table["weight_map"])
    wrong = table["weight_map"] | {names[0]: table["weight_map"][names[1]]}
    for weight_map, reason in (
        (wrong, rf"the index says that '{names[0]}' is in model-00002.* and it is in model-00001"),
        (table["weight_map"] | {"ghost": table["weight_map"][names[0]]}, "'ghost' is in .* and it is in none of them"),
        ({k: v for k, v in table["weight_map"].items() if k != names[0]}, f"'{names[0]}' is in no shard"),
    ):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(WeightsError, match=reason):
            _ = open_run(folder).checkpoint(3).stored
    index.write_text(json.dumps({"weight_map": table["weight_map"] | {"x": "model-00009-of-00003.safetensors"}}))
    with pytest.raises(WeightsError, match=r"names model-00009-of-00003\.safetensors, which is not there"):
        open_run(folder)
    deep = '{"weight_map": ' + "[" * 100_000
    for nonsense in ("{", "[]", '{"weight_map": 3}', '{"weight_map": {}}', deep, "\ud800"):
        index.write_text(nonsense, errors="surrogatepass")
        with pytest.raises(WeightsError, match=r"is not an index of shards|names no shard"):
            open_run(folder)
    index.unlink()
    expect_heads(open_run(folder), 3)


def test_a_tensor_in_two_shards_and_a_missing_shard_are_named(tmp_path):
    sharded(tmp_path / "step3", state(3), index=False)
    first, second = (tmp_path / "step3" / f"model-0000{i}-of-00003.safetensors" for i in (1, 2))
    second.write_bytes(first.read_bytes())
    with pytest.raises(WeightsError, match=r"is in model-00001-of-00003\.safetensors and in model-00002"):
        _ = open_run(tmp_path / "step3").checkpoint(3).stored
    second.unlink()
    with pytest.raises(WeightsError, match="lacks shard 2 of 3"):
        open_run(tmp_path / "step3")


def test_a_name_with_and_without_its_wrapper_is_refused(tmp_path):
    torch.save({"module.w": torch.zeros(2), "w": torch.ones(2)}, tmp_path / "model.pt")
    with pytest.raises(WeightsError, match=r"'w' and 'module\.w' are both 'w' once unwrapped"):
        _ = open_run(tmp_path / "model.pt").checkpoint(0).stored


def test_open_run_says_what_it_looked_for_and_suggests_the_hub(tmp_path):
    with pytest.raises(FileNotFoundError, match="write 'hub:EleutherAI/pythia-70m'"):
        open_run("EleutherAI/pythia-70m")
    with pytest.raises(ValueError, match=r"hub is for sources that begin with 'hub:'"):
        open_run(tmp_path, hub=Hub())
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ValueError, match="is no file of weights by its ending"):
        open_run(tmp_path / "a.txt")
    with pytest.raises(ValueError, match="is not a run"):
        open_run(tmp_path)


def test_pieces_of_zero_3_of_which_one_is_something_else_are_refused(tmp_path):
    from tests.fuzz import corpus

    folder = tmp_path / "global_step5"
    folder.mkdir()
    for name, content in corpus.zero_three().items():
        (folder / name).write_bytes(content)
    assert open_run(folder).checkpoint(5)["f"].tolist() == [0.0, 1.0, 2.0, 3.0]
    torch.save(torch.ones(2), folder / "zero_pp_rank_1_mp_rank_00_model_states.pt")
    with pytest.raises(WeightsError, match="the frozen parameter 'f' is not all there"):
        dict(open_run(folder).checkpoint(5))


def test_numbers_that_are_no_steps_and_names_that_are_no_text_are_refused(tmp_path):
    from tests.walking_run import write_run

    path = write_run(tmp_path / "walk", [0, 10, 20])
    (path / "step20.safetensors").rename(path / f"step{10**20}.safetensors")
    with pytest.raises(ValueError, match=rf"step{10**20}\.safetensors: {10**20} is no number of steps"):
        open_run(path)
    path = write_run(tmp_path / os.fsdecode(b"w\xff"), [0, 10])
    with pytest.raises(ValueError, match=r"w\\udcff': its name is not text"):
        open_run(path)


def test_weights_whose_squares_overflow_are_audited(tmp_path):
    from checkpoints.audit import audit
    from tests.walking_run import write_run

    path = write_run(tmp_path / "walk", [0, 10, 20, 30])
    for file in path.glob("*.safetensors"):
        save_file({name: tensor.double() * 1e200 for name, tensor in load_file(file).items()}, file)
    assert audit(open_run(path)).condemned == {}
