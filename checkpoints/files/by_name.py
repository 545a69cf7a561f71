"""Which reader a file of weights is for, by its name."""

from pathlib import Path

from checkpoints.files.byte_source import ByteSource
from checkpoints.files.checkpoint import Checkpoint
from checkpoints.files.msgpack_file import MsgpackFile
from checkpoints.files.npz_file import NpzFile
from checkpoints.files.safetensors_file import SafetensorsFile
from checkpoints.files.torch_file import SUFFIXES, TorchFile

FILE_SUFFIXES = (".safetensors", *SUFFIXES, ".npz", ".msgpack")
"""How the names of files of weights end; compare with `name.endswith`, .pth.tar has two dots."""


def open_by_name(name: str, source: ByteSource | Path | str) -> Checkpoint:
    """The reader for a file of this name; what has none of the other endings is taken for a file of torch.save."""
    if name.endswith(".safetensors"):
        return SafetensorsFile(source)
    if name.endswith(".npz"):
        return NpzFile(source)
    if name.endswith(".msgpack"):
        return MsgpackFile(source)
    return TorchFile(source)
