"""A tensor in a hundred numbers: enough to tell whether two are the same, and how far apart they are.

The digest answers the first question exactly. The sketch answers the second: 64 sums of the entries with random signs,
so that the distance of two sketches is the distance of the tensors to about one part in eleven (a random projection).
Beside them stand the sum of the entries, the largest and the smallest, and a check sum of the entries rounded to
bfloat16, by which a copy that went through fewer bits is known. A series is read once, tensor by tensor; everything
else is done with fingerprints.
"""

import hashlib
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from checkpoints.files import Checkpoint

SKETCH = 64
_CHUNK = 2**20


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """What is remembered of one tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    file: str
    digest: bytes
    not_finite: int
    norm: float
    is_constant: bool
    sketch: Float64[np.ndarray, " 64"]
    sum: float = 0.0
    lowest: float = 0.0
    highest: float = 0.0
    rounded: int = 0
    """Check sum of the entries rounded to bfloat16."""
    is_rounded: bool = False
    """Whether rounding to bfloat16 changes nothing."""

    @property
    def largest_share(self) -> float:
        """How much of the sum of squares is that of the largest entry."""
        if not 0 < self.norm < math.inf:  # of float64 beyond 1e154 the squares are none
            return 0.0
        return (max(abs(self.lowest), abs(self.highest)) / self.norm) ** 2


def fingerprint(tensor: Tensor, file: str = "") -> Fingerprint:
    """The fingerprint of one tensor."""
    raw = tensor.detach().cpu().contiguous().reshape(-1)
    digest = hashlib.sha256(raw.view(torch.uint8).numpy().data).digest()[:16] if raw.numel() else b""
    entries = raw if raw.is_floating_point() else raw.real if raw.is_complex() else raw.to(torch.float64)
    not_finite, squares, sketch = 0, 0.0, torch.zeros(SKETCH, dtype=torch.float64)
    total, lowest, highest, rounded, is_rounded = 0.0, math.inf, -math.inf, 0, True
    for number, chunk in enumerate(entries.split(_CHUNK) if entries.numel() else ()):
        values = chunk if chunk.dtype == torch.float64 else chunk.float()
        square = float(values @ values)
        if not math.isfinite(square):  # something is not finite, or too large to square in float32
            values = chunk.double()
            not_finite += int((~torch.isfinite(values)).sum())
            values = torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
            square = float(values @ values)
        squares += square
        low, high = torch.aminmax(values)
        total, lowest, highest = total + float(values.sum()), min(lowest, float(low)), max(highest, float(high))
        few_bits = values.to(torch.bfloat16)
        rounded = zlib.crc32(few_bits.view(torch.uint8).numpy().data, rounded)
        is_rounded = is_rounded and bool((few_bits == values).all())
        signed = values * _signs(_CHUNK, 0)[: len(values)].to(values.dtype)
        signed = torch.nn.functional.pad(signed, (0, -len(values) % SKETCH))
        # the same signs in every chunk would let equal chunks add up; a sign per chunk and sum undoes that
        sketch += _signs(SKETCH, number + 1) * signed.reshape(-1, SKETCH).sum(0)
    return Fingerprint(
        dtype=tensor.dtype,
        shape=tuple(tensor.shape),
        file=file,
        digest=digest,
        not_finite=not_finite,
        norm=math.sqrt(squares),
        is_constant=raw.numel() == 0 or (bool(raw[0] == raw[-1]) and bool((raw == raw[0]).all())),
        sketch=sketch.numpy(),
        sum=total,
        lowest=lowest if raw.numel() else 0.0,
        highest=highest if raw.numel() else 0.0,
        rounded=rounded,
        is_rounded=is_rounded,
    )


def fingerprints(checkpoint: Checkpoint, names: Iterable[str] | None = None) -> dict[str, Fingerprint]:
    """By name, the fingerprints of these tensors, or of all that are there."""
    names = list(checkpoint) if names is None else [name for name in names if name in checkpoint]
    return {name: fingerprint(checkpoint[name], checkpoint.stored[name].file) for name in names}


@cache
def _signs(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, (count,), generator=generator, dtype=torch.int8).float() * 2 - 1
