"""Files of torch.save are read as torch reads them, bit by bit, by ranges, and by a reader that can run nothing."""

import argparse
import io
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from checkpoints import WeightsError
from checkpoints.files.pickle_values import EndedError
from checkpoints.files.pickles import Machine
from checkpoints.files.torch_file import TorchFile
from checkpoints.files.torch_pickle import DTYPES
from tests.torch_archives import Bytes, archive, contents, number, rewritten, tensor_pickle

VIEWS = {
    "whole": lambda t: t,
    "transposed": lambda t: t.T,
    "rows": lambda t: t[1:],
    "columns": lambda t: t[:, ::2],
    "one row": lambda t: t[-1],
    "scalar": lambda t: t[0, 0],
    "nothing": lambda t: t[:0],
    "expanded": lambda t: t[:1].expand(3, -1),
    "conjugate": lambda t: t.conj(),
    "parameter": lambda t: torch.nn.Parameter(t, requires_grad=False),
}


def same_bits(ours: Tensor, theirs: Tensor) -> bool:
    theirs = theirs.detach().resolve_conj().resolve_neg()
    raw = [t.contiguous().as_strided((t.numel(),), (1,)).view(torch.uint8) for t in (ours, theirs)]
    return ours.dtype == theirs.dtype and ours.shape == theirs.shape and torch.equal(*raw)


def saved(content, **how) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, **how)
    return buffer.getvalue()


@st.composite
def state_dicts(draw):
    """Tensors of all dtypes, some of them views of one another, by name."""
    state = {}
    for i in range(draw(st.integers(1, 4))):
        dtype = DTYPES[draw(st.sampled_from(sorted(DTYPES)))]
        rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 5))
        raw = torch.tensor(draw(st.lists(st.integers(0, 255), min_size=8, max_size=8)), dtype=torch.uint8)
        raw = raw.repeat(rows * columns * dtype.itemsize // 8 + 1)[: rows * columns * dtype.itemsize].clone()
        base = (raw % 2 if dtype == torch.bool else raw).view(dtype).reshape(rows, columns)
        for view in draw(st.lists(st.sampled_from(sorted(VIEWS)), min_size=1, max_size=4, unique=True)):
            state[f"{i}.{view}"] = VIEWS[view](base)
    return state


@settings(max_examples=60, deadline=None)
@given(state_dicts(), st.sampled_from([2, 4]))
def test_reads_what_torch_reads_bit_by_bit(state, protocol):
    content = saved(state, pickle_protocol=protocol)
    ours, theirs = TorchFile(Bytes(content)), torch.load(io.BytesIO(content), weights_only=protocol == 2)
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        assert same_bits(ours[name], tensor), name
        assert ours.stored[name].shape == tuple(tensor.shape)
    ours.verify()


@settings(max_examples=30, deadline=None)
@given(state_dicts())
def test_reads_the_format_of_before_torch_1_6(state):
    content = saved(state, _use_new_zipfile_serialization=False)
    ours = TorchFile(Bytes(content))
    assert all(same_bits(ours[name], tensor) for name, tensor in state.items())


@pytest.mark.parametrize("length", [1 << 20, (1 << 20) + 1, (1 << 20) + 3, (1 << 20) + 7, 3 << 20])
def test_a_long_pickle_of_the_older_format_may_be_cut_anywhere_while_it_is_read(length):
    state = {"w": torch.arange(5.0), "notes": ["x" * 200] * 10 + ["y" * length, {"z": 1.5, "n": 70_000}]}
    assert torch.equal(TorchFile(Bytes(saved(state, _use_new_zipfile_serialization=False)))["w"], state["w"])


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_pickle_cut_anywhere_says_that_it_ends_too_early(cut):
    whole = pickle.dumps({"w": [1, 300, 70_000, 1.5, (1, 2), None], "text": "abc"}, 2)
    with pytest.raises(EndedError):
        Machine(whole[: min(cut, len(whole) - 1)], {}).load()


def test_a_file_of_the_other_byte_order_is_turned_round(tmp_path):
    state = {
        "w": torch.randn(3, 4),
        "h": torch.arange(5, dtype=torch.int16),
        "c": torch.randn(2, dtype=torch.complex64),
    }
    torch.save(state, tmp_path / "model.pt")
    widths = {"data/0": 4, "data/1": 2, "data/2": 4}

    def turned(name, content):
        if name.endswith("byteorder"):
            return b"big"
        width = next((width for key, width in widths.items() if name.endswith(key)), 1)
        return np.frombuffer(content, np.uint8).reshape(-1, width)[:, ::-1].tobytes()

    rewritten(tmp_path / "model.pt", turned)
    ours = TorchFile(tmp_path / "model.pt")
    assert all(same_bits(ours[name], tensor) for name, tensor in state.items())


def test_only_the_tensor_asked_for_is_read():
    state = {f"layer{i}": torch.randn(100, 100) for i in range(20)}
    source = Bytes(saved(state))
    checkpoint = TorchFile(source)
    assert same_bits(checkpoint["layer7"], state["layer7"])
    assert sum(stop - start for start, stop in source.asked) < 40_000 + 10_000


def test_a_record_shorter_than_its_storage_is_refused_and_not_filled_from_its_neighbours(tmp_path):
    torch.save({"a": torch.randn(64), "b": torch.randn(64)}, tmp_path / "model.pt")
    rewritten(tmp_path / "model.pt", lambda name, content: content[:16] if name.endswith("data/0") else content)
    with pytest.raises(WeightsError, match=r"model\.pt cannot be read .*data/0' has 16 bytes, and its tensors say 256"):
        TorchFile(tmp_path / "model.pt")["a"]


@pytest.mark.parametrize("size", [100, 1 << 18])
def test_a_flipped_bit_is_found_by_its_checksum(tmp_path, size):
    torch.save({"w": torch.randn(size)}, tmp_path / "model.pt")
    content = bytearray((tmp_path / "model.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(WeightsError, match=r"model\.pt cannot be read .* another checksum"):
        TorchFile(tmp_path / "model.pt").verify()
    with pytest.raises(WeightsError, match="another checksum"):
        TorchFile(tmp_path / "model.pt")["w"]


HUGE = b"\x8b" + (2000).to_bytes(4, "little") + b"\x7f" * 2000
CYCLE = b"\x80\x02}q\x00X\x05\x00\x00\x00modelh\x00s."
NESTED_CYCLE = b"\x80\x02}q\x00X\x05\x00\x00\x00layerh\x00s."
ONE = tensor_pickle(b"K\x01\x85", b"K\x01\x85")
ZEROS = b"\x80\x02}X\x01\x00\x00\x00wc__builtin__\nbytearray\n" + number(3_000_000_000) + b"\x85Rs."
COLLIDING = b"".join(b"\x8a\x0a" + (i * (2**61 - 1)).to_bytes(10, "little") + b"N" for i in range(3_000))
LAUGHS = ONE[:-1]
for i in range(30):  # each table holds the one before four times
    LAUGHS += (
        b"q" + bytes([i]) + b"0}" + b"".join(b"U\x01" + key + b"h" + bytes([i]) + b"s" for key in (b"a", b"b", b"c"))
    )
LAUGHS += b"."
LIES = {
    "three gigabytes of zeros": ZEROS,
    "a float repeated to a gigabyte": tensor_pickle(number(1 << 28) + b"\x85", b"K\x00\x85"),
    "a shape of 4,000 digits": tensor_pickle(HUGE + b"\x85", b"K\x01\x85"),
    "a shape of many digits": tensor_pickle(number(1 << 2000) + b"\x85", b"K\x01\x85"),
    "a thousand dimensions": tensor_pickle(b"(" + b"J\xff\xff\xff\x7f" * 1000 + b"t", b"(" + b"K\x01" * 1000 + b"t"),
    "beyond its storage": tensor_pickle(b"K\x02\x85", b"K\x01\x85"),
    "a storage that is not there": ONE.replace(b"\x01\x00\x00\x000", b"\x01\x00\x00\x009"),
    "negative strides": tensor_pickle(b"K\x01\x85", b"J\xff\xff\xff\xff\x85"),
    "lists without end": b"\x80\x02" + b"]" * 60_000 + b".",
    "memos without end": b"\x80\x04N" + b"\x94" * 60_000 + b".",
    "marks without end": b"\x80\x02" + b"(" * 60_000 + b".",
    "a text that would be 4 GB": b"\x80\x02X\xff\xff\xff\xff.",
    "keys that collide": b"\x80\x02}(" + COLLIDING + b"u.",
    "tuples as keys": b"\x80\x02}(" + b"".join(b"K\x01" + number(i) + b"\x86N" for i in range(20_000)) + b"u.",
    "a deep tuple as a key": b"\x80\x02}(K\x01" + b"\x85" * 200_000 + b"Nu.",
    "itself under model": CYCLE,
    "itself under a layer": NESTED_CYCLE,
    "a table shared over and over": LAUGHS,
    "no end": b"\x80\x02}",
    "more than was made": b"\x80\x02u.",
    "no pickle": b"",
    "a state for a number": b"\x80\x02K\x01}b.",
    "a call of a number": b"\x80\x02K\x01)R.",
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("form", ["zip", "old"])
def test_a_lie_costs_neither_memory_nor_time(lie, form, monkeypatch):
    monkeypatch.setattr("checkpoints.files.pickles.FLOOR", 1_000_000)  # the same for less: these run with type checks
    monkeypatch.setattr("checkpoints.files.state_dict.MOST_NAMES", 10_000)
    content = archive(LIES[lie], {"0": b"\0" * 4})
    if form == "old":
        header = b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
        content = header + LIES[lie] + pickle.dumps(["0"], 2) + (1).to_bytes(8, "little") + b"\0" * 4
    tracemalloc.start()
    try:
        with pytest.raises(WeightsError, match=r"memory\.pt.* (cannot be read|is refused|holds a|holds no)"):
            dict(TorchFile(Bytes(content)))
        assert tracemalloc.get_traced_memory()[1] < 6_000_000 + 6 * len(content)
    finally:
        tracemalloc.stop()


def test_a_compressed_pickle_is_refused_before_it_is_unpacked():
    content = archive(b"\x80\x02" + b"]" * 120_000_000, method=zipfile.ZIP_DEFLATED)
    assert len(content) < 200_000
    tracemalloc.start()
    with pytest.raises(WeightsError, match="is compressed"):
        dict(TorchFile(Bytes(content)))
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_tens_of_thousands_of_records_are_compared_in_linear_time():
    import time

    records = {f"archive/{i}": b"" for i in range(20_000)}
    content = archive(tensor_pickle(b"K\x01\x85", b"K\x01\x85"), {"0": b"\0" * 4, **records})
    start = time.process_time()
    assert list(TorchFile(Bytes(content))) == ["w"]
    assert time.process_time() - start < 4  # 1 s; comparing all with all took 8, and grew with the square


def test_settings_of_argparse_and_numbers_of_numpy_are_data(tmp_path):
    content = {
        "model": {"w": torch.ones(2)},
        "args": argparse.Namespace(layers=2, heads=4, name="tiny"),
        "loss": np.float64(0.5),
        "rng_state": [np.arange(624, dtype=np.uint32), ("MT19937", 3)],
        "best": {1.5, 2.5},
        "blob": b"\xff\x00",
        "step": 7,
    }
    for protocol in (2, 4):
        torch.save(content, tmp_path / "model.pt", pickle_protocol=protocol)
        checkpoint = TorchFile(tmp_path / "model.pt")
        assert checkpoint.recorded_config == {"layers": 2, "heads": 4, "name": "tiny"}
        assert checkpoint.recorded_step == 7
        assert checkpoint.archive.content["loss"] == 0.5
        assert checkpoint.archive.content["blob"] == b"\xff\x00"
        assert np.array_equal(checkpoint.archive.content["rng_state"][0].values, np.arange(624))


class Settings:
    pass


@pytest.mark.parametrize("protocol", [2, 4])
def test_any_other_class_is_refused_by_its_name(tmp_path, protocol):
    torch.save({"w": torch.ones(2), "settings": Settings()}, tmp_path / "model.pt", pickle_protocol=protocol)
    with pytest.raises(WeightsError, match=r"nothing of it was run: .*tests\.test_torch_file\.Settings"):
        dict(TorchFile(tmp_path / "model.pt"))


@pytest.mark.filterwarnings("ignore")
def test_kinds_of_tensors_that_are_not_read_are_refused_by_name(tmp_path):
    for kind, tensor in {
        "quantised": torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8),
        "sparse": torch.eye(3).to_sparse(),
        "meta": torch.empty(2, device="meta"),
    }.items():
        torch.save({"ok": torch.ones(2), "odd": tensor}, tmp_path / "model.pt")
        with pytest.raises(WeightsError, match=rf"model\.pt is refused: tensor 'odd' is .*{kind}"):
            dict(TorchFile(tmp_path / "model.pt"))


def test_a_program_of_torchscript_is_refused_as_one(tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "model.pt")
    parts = {"archive/" + name.split("/", 1)[1]: part for name, part in contents(tmp_path / "model.pt").items()}
    content = archive(parts.pop("archive/data.pkl"), {**parts, "archive/constants.pkl": b""})
    with pytest.raises(WeightsError, match="TorchScript"):
        dict(TorchFile(Bytes(content)))


def test_nested_state_dicts_are_flattened_with_dots(tmp_path):
    state = {
        "encoder": {"0": {"w": torch.ones(2)}},
        "heads": [{"b": torch.zeros(3)}],
        "optimizer": {"m": torch.ones(1)},
    }
    torch.save(state, tmp_path / "model.pt")
    assert sorted(TorchFile(tmp_path / "model.pt")) == ["encoder.0.w", "heads.0.b"]


def test_an_archive_of_more_than_32_bits_is_read():
    """Sizes and places in the form that archives beyond 4 GB use."""
    state = {"w": torch.arange(5.0)}
    parts = contents_of(saved(state))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, part in parts.items():
            with file.open(zipfile.ZipInfo(name), "w", force_zip64=True) as record:
                record.write(part)
    content = wide_directory(buffer.getvalue())
    assert torch.equal(TorchFile(Bytes(content))["w"], state["w"])


def contents_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def wide_directory(content: bytes) -> bytes:
    """The list of records with every size and place moved into the zip64 field of its entry."""
    end = content.rfind(b"PK\x05\x06")
    at = int.from_bytes(content[end + 16 : end + 20], "little")
    start, listing = at, b""
    while at < end:
        lengths = [int.from_bytes(content[at + i : at + i + 2], "little") for i in (28, 30, 32)]
        fixed, name = bytearray(content[at : at + 46]), content[at + 46 : at + 46 + lengths[0]]
        wide = b"".join(int.from_bytes(fixed[i : i + 4], "little").to_bytes(8, "little") for i in (24, 20, 42))
        for i in (20, 24, 42):
            fixed[i : i + 4] = b"\xff" * 4
        fixed[30:34] = (28).to_bytes(2, "little") + b"\0\0"
        listing += bytes(fixed) + name + b"\x01\x00\x18\x00" + wide
        at += 46 + sum(lengths)
    count = content[end + 8 : end + 10]
    tail = content[:start] + listing
    return tail + content[end : end + 8] + count * 2 + len(listing).to_bytes(4, "little") + content[end + 16 :]
