"""One changed input: read right or refused by name, in little memory and time; anything else is a violation."""

import os
import random
import resource
import shutil
import signal
import tempfile
import threading
import time
import tracemalloc
import warnings
from functools import cache
from pathlib import Path

from tests.fuzz.corpus import Files
from tests.fuzz.forms import FORMS, Form

HARD_LIMIT = 20.0
"""After which reading is broken off."""

BYTES = 96 << 20
"""By which one input may raise the memory of the process, besides four times its size."""


TRACED = 2_000_000
"""The same where Python's own memory is traced: from the small floor that tests give to readers of pickles."""


class Violation(Exception):  # noqa: N818 - it is what is looked for
    """What must not happen, with the input that it happened with."""


class Fuzzer:
    """Inputs by number, each in a new folder in memory where there is such a thing."""

    def __init__(self, keep: Path) -> None:
        self.keep = keep

    def __enter__(self) -> "Fuzzer":
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.root = Path(tempfile.mkdtemp(prefix="fuzz-", dir=base))
        self._timed = threading.current_thread() is threading.main_thread()
        if self._timed:
            signal.signal(signal.SIGPROF, _broken_off)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def try_whole(self, name: str) -> None:
        """The unchanged files must be read, else the changed ones say nothing."""
        if not self._judged(name, FORMS[name], _whole(name)):
            raise Violation(f"{name}: the unchanged files are refused")

    def try_one(self, name: str, number: int) -> bool:
        """Whether it was read (and right) rather than refused."""
        form, rng = FORMS[name], random.Random(f"{name} {number}")
        files = form.change(_whole(name), rng)
        try:
            return self._judged(name, form, files)
        except Violation as violation:
            place = self.keep / f"{name.replace(' ', '_')}-{number}"
            _write(place, files)
            again = f"python -m tests.fuzz --form {name!r} --first {number} --inputs 1"
            raise Violation(f"{name}, input {number}: {violation} (kept in {place}; again: {again})") from (
                violation.__cause__
            )

    def _judged(self, name: str, form: Form, files: Files) -> bool:
        folder = self.root / "fuzzed-input"
        _write(folder, files)
        size = sum(map(len, files.values()))
        if tracemalloc.is_tracing():
            tracemalloc.reset_peak()
        before, began = _peak(), time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._limit(HARD_LIMIT)
                try:
                    found = form.read(folder)
                finally:
                    self._limit(0)
                took, grew = time.process_time() - began, _peak() - before
                form.check(folder, found)
            is_read = True
        except (ValueError, OSError) as error:
            took, grew = time.process_time() - began, _peak() - before
            is_read = False
            said = str(error)
            if not any(part in said for part in ("fuzzed-input", "fuzzed/input", "127.0.0.1")):
                raise Violation(f"{type(error).__name__} names no file: {said[:300]}") from error
            if len(said) > 5000:
                raise Violation(f"a message of {len(said)} characters: {said[:100]} ...") from error
        except Exception as error:
            raise Violation(f"{type(error).__name__}: {str(error)[:300]}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if took > form.seconds:
            raise Violation(f"{took:.1f} s of CPU for {size} bytes")
        if grew > BYTES + 4 * size:
            raise Violation(f"{grew >> 20} MB of memory for {size} bytes")
        if tracemalloc.is_tracing() and (traced := tracemalloc.get_traced_memory()[1]) > TRACED + 20 * size:
            raise Violation(f"{traced} bytes of memory for {size}")
        return is_read

    def _limit(self, seconds: float) -> None:
        """Break off after so many seconds of CPU; 0 is never."""
        if self._timed:
            signal.setitimer(signal.ITIMER_PROF, seconds)


@cache
def _whole(name: str) -> Files:
    return FORMS[name].files()


def _write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _broken_off(*_: object) -> None:
    raise RuntimeError(f"broken off after {HARD_LIMIT} s of CPU")
