"""Files changed at random, where it hurts: every reader gives the right data or a WeightsError, in little memory.

Bytes are flipped, cut, doubled and replaced by numbers that lie, in zip directories, pickles, headers and tables; a
changed file may still be whole where the change did not matter, and then what is read must be what was saved. Files
whose values themselves were changed are told from others by their checksum, which zip has and safetensors has not.
"""

import io
import pickletools
import random
import tracemalloc
from itertools import pairwise

import msgpack
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save as save_safetensors

from checkpoints import WeightsError
from checkpoints.files.by_name import open_by_name
from checkpoints.files.distributed import DistributedCheckpoint
from tests.torch_archives import Bytes, archive

STATE = {
    "a.weight": torch.arange(12.0).reshape(3, 4),
    "a.turned": torch.arange(12.0).reshape(3, 4).T,
    "b": torch.arange(5, dtype=torch.int16),
    "c": torch.tensor(2.5, dtype=torch.bfloat16),
}
LIES = [0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1]


def torch_saved(**how) -> bytes:
    buffer = io.BytesIO()
    torch.save({"model": STATE, "step": 3, "optimizer": {"state": {0: {"m": torch.ones(3)}}}}, buffer, **how)
    return buffer.getvalue()


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{name: tensor.contiguous().numpy() for name, tensor in STATE.items() if name != "c"})
    return buffer.getvalue()


def flax() -> bytes:
    def packed(array):
        return msgpack.ExtType(1, msgpack.packb((array.shape, array.dtype.name, array.tobytes()), use_bin_type=True))

    arrays = {name: tensor.contiguous().numpy() for name, tensor in STATE.items() if name != "c"}
    return msgpack.packb({"params": arrays, "step": 3}, default=packed, strict_types=True)


def changed(content: bytes, rng: random.Random) -> bytes:
    """One to three changes, small and large."""
    changes = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changes) + 1)
        match rng.randrange(6):
            case 0 if changes:
                changes[min(at, len(changes) - 1)] ^= 1 << rng.randrange(8)
            case 1:
                del changes[at : at + rng.choice([1, 4, 50])]
            case 2:
                changes[at:at] = changes[at : at + rng.choice([1, 4, 50])]
            case 3:
                width = rng.choice([1, 2, 4, 8])
                changes[at : at + width] = (rng.choice(LIES) % (1 << 8 * width)).to_bytes(
                    width, rng.choice(["little", "big"])
                )
            case 4:
                changes[at:] = b""
            case _:
                changes[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(changes)


def changed_pickle(content: bytes, rng: random.Random) -> bytes:
    """A pickle with instructions left out, doubled, put elsewhere or replaced."""
    starts = [at for _, _, at in pickletools.genops(content)] + [len(content)]
    parts = [content[a:b] for a, b in pairwise(starts)]
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(1, len(parts))
        match rng.randrange(5):
            case 0:
                del parts[at : at + 1]
            case 1:
                parts[at:at] = [rng.choice(parts)] * rng.choice([1, 2, 300])
            case 2:
                parts[at:at] = [rng.choice(INSTRUCTIONS)]
            case 3:
                parts[at : at + 1] = [b"\x8a\x08" + rng.choice(LIES).to_bytes(8, "little")]
            case _:
                parts[at : at + 1] = [changed(parts[min(at, len(parts) - 1)], rng)]
    return b"".join(parts)


INSTRUCTIONS = [bytes([code]) for code in b"().0}]l}eutsabRQ2N\x81\x85\x86\x87\x88\x8f\x90\x91\x92\x93\x94"] + [
    b"cos\nsystem\n",
    b"cbuiltins\neval\n",
    b"cbuiltins\nbytearray\n",
    b"ctorch\nload\n",
    b"cpickle\nloads\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nSize\n",
    b"X\xff\xff\xff\x7f",
    b"B\xff\xff\xff\x7f",
    b"r\xff\xff\xff\xff",
]


def inside_the_archive(content: bytes, rng: random.Random) -> bytes:
    """The archive with its pickle changed and put together again, checksums right."""
    import zipfile

    with zipfile.ZipFile(io.BytesIO(content)) as file:
        records = {"archive/" + name.split("/", 1)[1]: file.read(name) for name in file.namelist()}
    return archive(changed_pickle(records.pop("archive/data.pkl"), rng), records)


def distributed(tmp_path) -> dict[str, bytes]:
    dcp.save({"model": STATE, "step": 3}, checkpoint_id=tmp_path, no_dist=True)
    return {path.name: path.read_bytes() for path in tmp_path.iterdir()}


FORMS = {
    "zip": ("model.pt", torch_saved(), changed),
    "pickle of a zip": ("model.pt", torch_saved(), inside_the_archive),
    "older": ("model.pt", torch_saved(_use_new_zipfile_serialization=False), changed),
    "safetensors": ("model.safetensors", save_safetensors({n: t.contiguous() for n, t in STATE.items()}), changed),
    "npz": ("model.npz", npz(), changed),
    "msgpack": ("model.msgpack", flax(), changed),
}


def judge(checkpoint, content: bytes, *, is_checked: bool) -> bool:
    """Whether it was read; then it must be right, as far as the format can tell."""
    tracemalloc.clear_traces()
    try:
        tensors = dict(checkpoint)
        checkpoint.verify()
        _ = checkpoint.recorded_step, checkpoint.recorded_config
    except WeightsError as error:
        if checkpoint.label not in str(error):
            raise AssertionError(f"does not name the file: {error}") from error
        return False
    finally:
        assert tracemalloc.get_traced_memory()[1] < 2_000_000 + 20 * len(content)
    if is_checked:
        assert all(torch.equal(tensors[name], tensor) for name, tensor in STATE.items() if name in tensors)
    return True


@pytest.fixture(autouse=True)
def small_floor(monkeypatch):
    monkeypatch.setattr("checkpoints.files.pickles.FLOOR", 500_000)
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("form", FORMS)
def test_a_changed_file_is_read_right_or_refused_by_name(form, seeds):
    name, content, change = FORMS[form]
    assert judge(open_by_name(name, Bytes(content, name)), content, is_checked=True)
    rng = random.Random(form)
    refused = 0
    for _ in range(50 * seeds):
        broken = change(content, rng)
        refused += not judge(open_by_name(name, Bytes(broken, name)), broken, is_checked=form == "zip")
    assert refused > 10 * seeds  # most changes matter: a reader that takes everything would not be found out otherwise


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_changed_distributed_checkpoint_is_read_right_or_refused_by_name(tmp_path, seeds):
    files = distributed(tmp_path)
    rng = random.Random(0)
    refused = 0
    for number in range(40 * seeds):
        broken = dict(files)
        name = ".metadata" if number % 4 else "__0_0.distcp"
        broken[name] = (
            (changed_pickle if number % 2 else changed)(files[name], rng) if number % 4 else changed(files[name], rng)
        )
        sources = {file: Bytes(content, f"folder/{file}") for file, content in broken.items()}

        def opened(file, sources=sources):
            if file not in sources:
                raise WeightsError(f"folder/{file} does not exist")
            return sources[file]

        refused += not judge(DistributedCheckpoint("folder", opened), b"".join(broken.values()), is_checked=False)
    assert refused > 10 * seeds


def test_the_changes_reach_what_would_run(tmp_path):
    """The check of the check: among changed pickles some name functions that unpickling would call."""
    content = FORMS["pickle of a zip"][1]
    rng = random.Random(1)
    reasons = set()
    for _ in range(200):
        try:
            dict(open_by_name("model.pt", Bytes(inside_the_archive(content, rng), "model.pt")))
        except WeightsError as error:
            reasons.add("asks for" if "asks for" in str(error) else "other")
    assert reasons == {"asks for", "other"}
