"""Arithmetic on one thread: small matrices gain little by more, and lose much where other processes use the cores."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """The same bits everywhere, and no fight with other processes over the cores."""
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else 1
    if threads == 1 and all(library.num_threads == 1 for library in _pools().lib_controllers):
        yield  # asking costs a tenth of setting
        return
    try:
        if torch:
            torch.set_num_threads(1)
        with _pools().limit(limits=1):
            yield
    finally:
        if torch:
            torch.set_num_threads(threads)


@cache
def _pools() -> ThreadpoolController:
    """The libraries with threads of their own; finding them takes longer than measuring a small layer."""
    import scipy.linalg  # noqa: F401 (brings one of its own)

    return ThreadpoolController()
