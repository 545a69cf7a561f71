"""However a training ends, what was measured is not lost: at the end of Python, and where it is told to terminate.

Leaving `with`, by an exception or by Ctrl-C, closes a monitor by itself. For the other two ends there is a list of the
monitors that are open. SIGTERM is only answered where nobody else does: monitors flush what they hold, and the process
then ends as it would have. A monitor that is in the middle of something (`is_busy`) finishes that first; then its
`break_off` is called.
"""

import atexit
import os
import signal
import threading
import weakref
from typing import Any

_OPEN: weakref.WeakSet[Any] = weakref.WeakSet()
_STATE = {"process": 0, "terminated": False}


def remember(monitor: Any) -> None:
    """Tell it of the end, if that comes before it is closed."""
    if not _OPEN:
        _STATE.update(process=os.getpid(), terminated=False)
        atexit.register(_end)
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminated)
    _OPEN.add(monitor)


def forget(monitor: Any) -> None:
    """It was closed."""
    _OPEN.discard(monitor)
    if not _OPEN:
        atexit.unregister(_end)
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is _terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def act_on_termination() -> None:
    """To be called when a monitor is done with something: ends the process if it was told to end meanwhile."""
    if _STATE["terminated"]:
        _end()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def _terminated(number: int, frame: Any) -> None:
    _STATE["terminated"] = True
    if os.getpid() != _STATE["process"] or not any(monitor.is_busy for monitor in _OPEN):
        act_on_termination()


def _end() -> None:
    """Break off all that are open, in the process that made them: a fork has copies, which are not its to close."""
    if os.getpid() == _STATE["process"]:
        for monitor in list(_OPEN):
            monitor.break_off()
