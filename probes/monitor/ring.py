"""Copies of recent weights, reaching back to half of the current step: as many as fit into memory, some more on disk.

Copies are a constant ratio of the step apart. Those that memory has no room for are files of the run directory, under
names that the next writer takes for left-overs; one that turns out to matter is given its proper name, which is quick.
"""

import os
import shutil
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from checkpoints.files.in_memory import InMemory
from checkpoints.files.safetensors_file import SafetensorsFile

REACH = 2.0
"""The newest step over the oldest."""
MOST = 512
"""Copies, however small a model is."""
FEWEST = 64
"""Copies that there should be, on disk if need be."""
_OF_FREE_SPACE = 0.1


class Ring:
    """At most `in_memory` copies in memory and `on_disk` in a folder, by step; the oldest go."""

    def __init__(self, in_memory: int, on_disk: int, folder: Path | None) -> None:
        self.in_memory, self.on_disk, self._folder = in_memory, on_disk if folder else 0, folder
        self._copies: dict[int, InMemory] = {}
        self._files: dict[int, Path] = {}

    @staticmethod
    def of(nbytes: int, memory: int, folder: Path | None) -> "Ring":
        """For weights of so many bytes, in so many bytes of memory."""
        in_memory = max(2, min(MOST, memory // max(nbytes, 1)))
        wanted = max(0, FEWEST - in_memory) if folder else 0
        free = shutil.disk_usage(folder).free if folder and wanted else 0
        return Ring(in_memory, min(wanted, int(_OF_FREE_SPACE * free) // max(nbytes, 1)), folder)

    @property
    def spacing(self) -> float:
        """The ratio of steps from one copy to the next."""
        return REACH ** (1 / (self.in_memory + self.on_disk))

    @property
    def steps(self) -> list[int]:
        """Those that there are copies of, ascending."""
        return sorted([*self._files, *self._copies])

    def __len__(self) -> int:
        return len(self._copies) + len(self._files)

    def add(self, step: int, copy: InMemory) -> None:
        """One more, the newest; older ones go to disk or are dropped."""
        self._copies[step] = copy
        while len(self._copies) > self.in_memory:
            oldest = min(self._copies)
            leaving = self._copies.pop(oldest)
            if self.on_disk:
                self._spill(oldest, leaving)
        while len(self._files) > self.on_disk or (self._files and min(self._files) * REACH < step):
            self._files.pop(min(self._files)).unlink(missing_ok=True)
        while self._copies and min(self._copies) * REACH < step:
            del self._copies[min(self._copies)]

    def take(self, step: int) -> InMemory | SafetensorsFile:
        """The copy of a step, which is none of the ring's any more; its file stays until `discard`."""
        if step in self._copies:
            return self._copies.pop(step)
        return SafetensorsFile(self._files[step])

    def discard(self, step: int) -> None:
        """Let go of a step."""
        self._copies.pop(step, None)
        if step in self._files:
            self._files.pop(step).unlink(missing_ok=True)

    def clear(self) -> None:
        """Let go of all of them."""
        for step in self.steps:
            self.discard(step)

    def _spill(self, step: int, copy: InMemory) -> None:
        assert self._folder is not None
        path = self._folder / f".ring-{step:09d}.{os.getpid()}.partial"
        tensors: dict[str, Tensor] = {name: copy[name].contiguous() for name in copy}
        save_file(tensors, path)
        self._files[step] = path
