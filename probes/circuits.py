"""From the tensors of a checkpoint to the matrices that probes look at: the circuits of each model family.

linear-icl    ov: p2, what is written for what was read;  qk: q1, what is matched with the query;
              product: p2 q1, which carries the modes of the theory
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from probes.matrices import Factored

Circuits = Mapping[str, Callable[[Mapping[str, Tensor]], "Tensor | Factored"]]

FAMILIES: dict[str, Circuits] = {
    "linear-icl": {
        "ov": lambda tensors: tensors["p2"][None, None],
        "qk": lambda tensors: tensors["q1"][None, None],
        "product": lambda tensors: Factored(tensors["p2"][None, None], tensors["q1"][None, None]),
    },
}
"""By family and circuit: from the tensors of a checkpoint to a matrix [layer, head, rows, columns]."""


def circuit_of(family: str, circuit: str) -> Callable[[Mapping[str, Any]], "Tensor | Factored"]:
    """How to build one circuit; raises ValueError naming what is known."""
    if family not in FAMILIES:
        raise ValueError(f"family {family!r} has no circuits here; known families: {', '.join(FAMILIES)}")
    if circuit not in FAMILIES[family]:
        raise ValueError(f"{family} has no circuit {circuit!r}; it has {', '.join(FAMILIES[family])}")
    return FAMILIES[family][circuit]
