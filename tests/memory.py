"""How much memory this process has had at its peak, from Linux's own account.

getrusage would not do: a child begins with its parent's peak.
"""

from pathlib import Path

_STATUS = Path("/proc/self/status")


def _bytes(field: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def reset_peak() -> int:
    """Forget earlier peaks; the memory in use now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _bytes("VmRSS")


def peak() -> int:
    """The peak since then."""
    return _bytes("VmHWM")
