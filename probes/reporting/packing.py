"""Many curves as text in a page: sixteen bits a number, each row on a scale of its own.

    code 0 .. 65534   low + (high - low) * code / 65534, or exp of that where the row is stored as logarithms
    code 65535        there is no number

A row is stored as logarithms where all its numbers are positive and the largest is ten times the smallest or more, so
that small numbers keep their digits: they are right to 1 in 10,000 over six decades. `app/data.js` reads it back.
"""

import base64
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

MISSING = 65535
STEPS = 65534
"""Between the lowest and the highest number of a row."""

WIDE = 10.0
"""Largest over smallest from which logarithms are stored."""


@dataclass(frozen=True)
class Packed:
    """codes: base64 of little-endian uint16 [row, step]; scales: of float64 [row, (low, high)]; logs: "1" or "0"."""

    codes: str
    scales: str
    logs: str


def pack(values: Float64[np.ndarray, "row step"]) -> Packed:
    """Numbers as text; what is not finite is no number."""
    codes = np.full(values.shape, MISSING, dtype="<u2")
    scales = np.zeros((len(values), 2), dtype="<f8")
    logs = []
    for row, numbers in enumerate(values):
        there = np.isfinite(numbers)
        known = numbers[there]
        is_log = bool(known.size and known.min() > 0 and known.max() >= WIDE * known.min())
        logs.append(is_log)
        if not known.size:
            continue
        known = np.log(known) if is_log else known
        low, high = float(known.min()), float(known.max())
        scales[row] = low, high
        width = high - low
        if not np.isfinite(width):  # one number at either end of what float64 holds
            raise ValueError(f"row {row} reaches from {low:g} to {high:g}: too far apart to be put on one scale")
        codes[row, there] = np.round((known - low) / width * STEPS) if width > 0 else 0
    return Packed(_text(codes), _text(scales), "".join("1" if one else "0" for one in logs))


def unpack(packed: Packed, steps: int) -> Float64[np.ndarray, "row step"]:
    """The numbers again, as the page sees them."""
    codes = np.frombuffer(base64.b64decode(packed.codes), dtype="<u2").reshape(-1, steps)
    scales = np.frombuffer(base64.b64decode(packed.scales), dtype="<f8").reshape(-1, 2)
    values = scales[:, :1] + (scales[:, 1:] - scales[:, :1]) * codes / STEPS
    is_log = np.array([one == "1" for one in packed.logs], dtype=bool)
    values[is_log] = np.exp(values[is_log])
    return np.where(codes == MISSING, np.nan, values)


def _text(numbers: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers).tobytes()).decode("ascii")
