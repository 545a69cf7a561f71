"""A text file that somebody else appends to, each byte of it read once.

The offset is remembered and only what came since is read. A last line without its end is kept until the rest of it
comes. A file that was replaced or shortened, as when a run is resumed, is read again from its beginning.
"""

import os
from pathlib import Path

_AT_ONCE = 2**23  # bytes: what is shown is never more than a moment behind, however long the file


class Tail:
    """The file. only_last: begin so many bytes before the end, for files of which only the end matters."""

    def __init__(self, path: Path, only_last: int | None = None) -> None:
        self.path, self.only_last = path, only_last
        self.began_again = False
        """Whether the last `read` began again: forget what was read before."""
        self.behind = 0
        """Bytes that were there and not yet read."""
        self.written = 0.0
        """When the file was last written, by its own clock."""
        self._inode: int | None = None
        self._offset = 0
        self._rest = b""
        self._skips = False

    @property
    def ends_in_mid_line(self) -> bool:
        """Whether half a line is there, the other half of which has not come."""
        return bool(self._rest) and not self.behind

    def read(self) -> list[str]:
        """The whole lines that came since the last time, without their ends; at most 8 MB of them."""
        try:
            with open(self.path, "rb", buffering=0) as file:
                stat = os.fstat(file.fileno())
                self._find_beginning(stat)
                file.seek(self._offset)
                new = file.read(min(_AT_ONCE, max(0, stat.st_size - self._offset)))
        except FileNotFoundError:
            self.began_again, self._inode, self._offset, self._rest, self.behind = self._offset > 0, None, 0, b"", 0
            return []
        self._offset += len(new)
        self.behind, self.written = max(0, stat.st_size - self._offset), stat.st_mtime
        *lines, self._rest = (self._rest + new).split(b"\n")
        if self._skips and lines:
            del lines[0]  # where reading began in the middle of a line
            self._skips = False
        return [line.decode(errors="replace") for line in lines]

    def _find_beginning(self, stat: os.stat_result) -> None:
        """Where to read on from: after what was read, or anew if this is another file or a shorter one."""
        is_new = self._inode is None
        self.began_again = not is_new and (stat.st_ino != self._inode or stat.st_size < self._offset)
        if is_new or self.began_again:
            self._offset = max(0, stat.st_size - self.only_last) if self.only_last else 0
            self._rest, self._skips = b"", self._offset > 0
        self._inode = stat.st_ino
