"""A file written by torch.save: a state dict, or something that holds one.

Such files are pickles, and pickles are programs. They are read as data by a machine of our own (see pickles.py): what
asks for more is refused, with its name, and is never run. Tensors are read by their ranges, when asked for.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from checkpoints.files.byte_source import ByteSource, as_byte_source, parsed_from
from checkpoints.files.checkpoint import Checkpoint, Stored, WeightsError
from checkpoints.files.state_dict import kept_config, kept_step, state_dict_in
from checkpoints.files.torch_archive import TorchArchive, open_archive
from checkpoints.files.torch_pickle import TensorRecord, Unreadable

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pth.tar")


class TorchFile(Checkpoint):
    """The state dict in one torch file."""

    def __init__(self, source: ByteSource | Path | str) -> None:
        self.bytes = as_byte_source(source)
        self.label = self.bytes.label

    @cached_property
    def archive(self) -> TorchArchive:
        """The file's content, with descriptions in place of tensors."""
        return parsed_from(self.bytes, open_archive)

    @cached_property
    def records(self) -> dict[str, TensorRecord]:
        """Where each tensor of the state dict is."""
        state = state_dict_in(self.archive.content, self.label, (TensorRecord, Unreadable))
        for name, record in state.items():
            reason = record.reason if isinstance(record, Unreadable) else record.fault()
            if reason:
                raise WeightsError(f"{self.label} is refused: tensor {name!r} is {reason}")
        return state

    def _table(self) -> Mapping[str, Stored]:
        return {name: Stored(record.dtype, record.shape, self.label) for name, record in self.records.items()}

    def _read(self, name: str) -> Tensor:
        return self.archive.tensor(self.records[name])

    def _prefetch(self, raw_names: list[str]) -> None:
        ranges = []
        for name in raw_names:
            record = self.records[name]
            start, stop = self.archive.span(record.storage)
            ranges.append((start, stop))
        self.bytes.prefetch(ranges)

    def verify(self) -> None:
        """Compare the whole file with the checksums in it."""
        self.archive.verify()

    @property
    def recorded_step(self) -> int | None:
        """The step that the trainer kept beside the weights."""
        _ = self.records  # a file without weights is refused before anything else is believed
        return kept_step(self.archive.content)

    @property
    def recorded_config(self) -> dict[str, Any]:
        """The shape of the model, where the trainer kept it beside the weights."""
        _ = self.records
        return kept_config(self.archive.content)
