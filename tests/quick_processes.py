"""Commands in processes of their own that start in milliseconds: forked from one that has imported everything already.

Starting Python and importing torch takes seconds, which tests that kill a command ten times would pay ten times. The
server that forks (multiprocessing's forkserver) runs nothing but imports, so that a child begins as a new process does.
"""

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["probes.__main__", "probes.measuring.measure", "models.training", "scipy.optimize"])


def started(function: Callable[..., Any], *arguments: Any) -> BaseProcess:
    """function(*arguments) in a process of its own, its output thrown away; `exitcode` is -9 where it was killed."""
    process = _SERVER.Process(target=_quietly, args=(function, *arguments))
    process.start()
    return process


def probes_command(*arguments: str) -> None:
    """What `probes ARGUMENTS` does."""
    from probes.__main__ import app

    app(list(arguments), standalone_mode=True)


def _quietly(function: Callable[..., Any], *arguments: Any) -> None:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        try:
            function(*arguments)
        except SystemExit as exit_:
            sys.exit(exit_.code)
