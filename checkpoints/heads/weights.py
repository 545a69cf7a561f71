"""One stored matrix of attention: its name, the order of its axes, and how it is cut into heads.

    Weight("h.{layer}.attn.c_attn.weight", "d_model (part head d_head)", part=0)

reads "in every layer, the first third of the columns of c_attn, cut into heads" (einops' notation). The axes:

    head, d_head, d_model     how many is told by the config, d_head follows from the shape
    part                      `parts` equal pieces fused into one, of which `part` counts
    slot                      queries, then keys, then values, head by head: (slot d_head) d_model; after `kv`, those of
                              each key head together: (kv slot d_head) d_model
    cut                       pieces of unequal sizes, named by keys of the config; `part` counts them
    block                     `blocks` groups of heads that lie apart
    latent                    what `down` writes: the matrix is a product, read through a narrow space

Where no axis is called head, there is one for all heads.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import einops
import torch
from torch import Tensor

Role = Literal["query", "key", "value", "output"]


@dataclass(frozen=True)
class HeadCounts:
    """How many heads ask, and how many keys and values they share; None where nothing says so."""

    heads: int | None
    kv_heads: int | None

    def of(self, role: Role) -> int | None:
        """How many heads a matrix of this role has."""
        return self.kv_heads if role in ("key", "value") else self.heads


@dataclass(frozen=True)
class Weight:
    """One stored matrix: its name after any prefix, the order of its axes, and which piece of a fused matrix it is.

    down is the matrix in front of it where there are two (latent attention), and latent_norm the gain between them.
    """

    name: str
    axes: str
    part: int = 0
    parts: int = 3
    cut: tuple[str, ...] = ()
    blocks: int = 1
    down: "Weight | None" = None
    latent_norm: str | None = None

    def __post_init__(self) -> None:
        """Refuse a piece that there is not."""
        pieces = len(self.cut) if self.cut else self.parts
        if not 0 <= self.part < pieces:
            raise ValueError(f"part {self.part} of {self.name}: it has {pieces}, counted from 0")

    @property
    def names(self) -> list[str]:
        """The tensors it is made of."""
        return [self.name, *(self.down.names if self.down else [])]

    @property
    def has_head_axis(self) -> bool:
        """Whether the tensor has an axis of its own for the heads."""
        return "(" not in self.axes and "head" in self.axes.split()

    def read(
        self, tensors: Callable[[str], Tensor], role: Role, counts: HeadCounts, config: Mapping[str, Any]
    ) -> Tensor:
        """[head, d_model, d_head], of an output [head, d_head, d_model]; EinopsError where the shape is another."""
        matrix = self._cut_out(tensors(self.name), role, counts, config)
        if self.down is None:
            return matrix
        down = self.down._cut_out(tensors(self.down.name), role, counts, config)[0]
        if down.shape[1] != matrix.shape[1]:
            raise einops.EinopsError(f"{self.down.name} writes {down.shape[1]} dimensions")
        return down.double() @ matrix.double()

    def _cut_out(self, stored: Tensor, role: Role, counts: HeadCounts, config: Mapping[str, Any]) -> Tensor:
        axes = self.axes.replace("(", " ").replace(")", " ").split()
        if "slot" in axes:
            return self._from_slots(stored, role, counts)
        into = "head d_head d_model" if role == "output" else "head d_model d_head"
        sizes: dict[str, int] = {}
        count = counts.of(role)
        if "head" not in axes:
            into = into.replace("head ", "1 ", 1)
        elif "block" in axes:
            into = into.replace("head ", "(block head) ", 1)
            sizes |= {"block": self.blocks}
        elif count is not None:
            sizes["head"] = count
        if "latent" in axes:
            into = into.replace("d_model", "latent")
        if "cut" in axes:
            into = into.replace("d_head", "cut")
        if "part" in axes:
            local = count // self.blocks if count is not None and "block" in axes else None
            sizes |= {"part": self.parts, **({"head": local} if local is not None else {})}
            return einops.rearrange(stored, f"{self.axes} -> part {into}", **sizes)[self.part]
        matrix = einops.rearrange(stored, f"{self.axes} -> {into}", **sizes)
        return self._piece(matrix, config) if "cut" in axes else matrix

    def _piece(self, matrix: Tensor, config: Mapping[str, Any]) -> Tensor:
        """The piece that is meant, of sizes that the config names."""
        lengths = []
        for key in self.cut:
            if not isinstance(config.get(key), int):
                raise ValueError(f"no config says {key}, into which {self.name} is cut")
            lengths.append(config[key])
        if sum(lengths) != matrix.shape[-1]:
            raise einops.EinopsError(f"{' + '.join(self.cut)} is {sum(lengths)}")
        return matrix.split(lengths, -1)[self.part]

    def _from_slots(self, stored: Tensor, role: Role, counts: HeadCounts) -> Tensor:
        """Queries, keys and values fused, with fewer keys and values than queries."""
        heads, kv = counts.heads or 0, counts.kv_heads or 0
        grouped = "kv" in self.axes.replace("(", " ").split()
        group = heads // kv if grouped else heads
        each = 1 if grouped else kv
        sizes = {"slot": group + 2 * each, **({"kv": kv} if grouped else {})}
        outer = "kv" if grouped else "1"
        slots = einops.rearrange(stored, f"{self.axes} -> {outer} slot d_model d_head", **sizes)
        places = {"query": (0, group), "key": (group, each), "value": (group + each, each)}[role]
        return einops.rearrange(slots.narrow(1, *places), "kv slot d_model d_head -> (kv slot) d_model d_head")


def kv_heads_by_shape(fused: Weight, stored: tuple[int, ...], heads: int, written: int) -> int | None:
    """How many key heads a fused matrix holds, if its output reads `written` dimensions of `heads` heads."""
    rows = stored[0] if fused.axes.startswith("(") else stored[-1]
    if "slot" not in fused.axes or written % heads:
        return None
    d_head = written // heads
    if rows % d_head or (rows // d_head - heads) % 2 or rows // d_head <= heads:
        return None
    return (rows // d_head - heads) // 2


def as_shapes(stored: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensors that have a shape and no content, from whatever has shapes by name."""
    return {name: torch.empty(entry.shape, device="meta") for name, entry in stored.items()}
