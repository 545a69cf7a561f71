"""What counts as a matrix here: an array [..., rows, columns], or a product of two that is never multiplied out.

An attention head's OV and QK circuits are d_model x d_model with rank d_head. `Factored(left, right)` keeps such a
matrix as its factors, batched over leading axes, and every probe takes it wherever it takes an array.

Arrays may be NumPy or torch, of any floating type, on any device; torch in gives torch out on the same device, anything
else (NumPy, lists, a DataFrame) gives NumPy out. One tensor among several arguments makes the result a tensor. Type
checkers are told the same by overloads. What is one number per matrix has the shape of the batch; for a single matrix
NumPy hands out a scalar, which does what an array of no axes does and prints as a number. All arithmetic is float64
whatever the checkpoint held.

This file establishes shapes: it takes loose input and raises readable errors. Everything downstream trusts it.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeGuard, TypeVar, overload

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64
from torch import Tensor

Array = np.ndarray | Tensor

A = TypeVar("A", np.ndarray, Tensor)
"""The kind of array that a matrix was handed in as, and that results are handed out as."""

Nested = Sequence[Any] | pd.DataFrame
"""What is read as a NumPy array without being one: a list of lists, a DataFrame."""


class Factored(Generic[A]):
    """The matrix `left @ right`, kept as its factors.

    left is [..., rows, inner], right is [..., inner, columns]; leading axes are a batch and broadcast, so that heads
    which share a factor (grouped key-value heads) need no copies. Building one reads no data and copies none.
    """

    @overload
    def __init__(self: "Factored[Tensor]", left: Tensor, right: np.ndarray | Nested | Tensor) -> None: ...
    @overload
    def __init__(self: "Factored[Tensor]", left: np.ndarray | Nested, right: Tensor) -> None: ...
    @overload
    def __init__(self: "Factored[np.ndarray]", left: np.ndarray | Nested, right: np.ndarray | Nested) -> None: ...
    def __init__(self, left: Any, right: Any) -> None:
        self._numpy_out = not (isinstance(left, Tensor) or isinstance(right, Tensor))
        left, right = _tensor(left, "left"), _tensor(right, "right")
        if left.device != right.device:
            raise ValueError(f"left is on {left.device}, right on {right.device}: move both to one device")
        if left.shape[-1] != right.shape[-2]:
            raise ValueError(
                f"left is {_shape(left)} and right is {_shape(right)}: the inner axes must agree, "
                f"{left.shape[-1]} is not {right.shape[-2]}. Is one of them stored transposed?"
            )
        self._left, self._right = left, right
        if left.shape[:-2] == right.shape[:-2]:
            return
        try:
            batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        except RuntimeError:
            raise ValueError(
                f"left is {_shape(left)} and right is {_shape(right)}: the leading axes do not broadcast"
            ) from None
        self._left = left.expand(*batch, *left.shape[-2:])
        self._right = right.expand(*batch, *right.shape[-2:])

    @property
    def left(self) -> A:
        """The factor [..., rows, inner]."""
        return self._in_kind(self._left)

    @property
    def right(self) -> A:
        """The factor [..., inner, columns]."""
        return self._in_kind(self._right)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the product, [..., rows, columns]."""
        return (*self._left.shape[:-1], self._right.shape[-1])

    @property
    def inner(self) -> int:
        """The inner dimension, which bounds the rank (d_head for an attention circuit)."""
        return self._left.shape[-1]

    @property
    def mT(self) -> "Factored[A]":  # noqa: N802 (the array libraries' own name for it)
        """The transpose of the last two axes, still factored."""
        return self._like(self._right.mT, self._left.mT)

    def __getitem__(self, index: Any) -> "Factored[A]":
        """Index the leading axes: `heads[3]`, `heads[:, 0]`."""
        parts = index if isinstance(index, tuple) else (index,)
        if any(part is None or part is Ellipsis for part in parts) or len(parts) > len(self.shape) - 2:
            raise IndexError(f"only the leading axes {self.shape[:-2]} of a Factored can be indexed, one by one")
        return self._like(self._left[index], self._right[index])

    def dense(self) -> A:
        """The product multiplied out, in float64. For small matrices and for tests."""
        return self._in_kind(self._left.double() @ self._right.double())

    def __repr__(self) -> str:
        """Shape, inner dimension and type."""
        return f"Factored(shape={self.shape}, inner={self.inner}, dtype={self._left.dtype})"

    def _like(self, left: Tensor, right: Tensor) -> "Factored[A]":
        made: Factored[Any] = Factored(left, right)
        made._numpy_out = self._numpy_out
        return made

    def _in_kind(self, tensor: Tensor) -> Any:
        return tensor.numpy() if self._numpy_out else tensor


Matrix = Array | Factored

AsNumpy = np.ndarray | Nested | Factored[np.ndarray]
"""A matrix that gives NumPy arrays."""

AnyMatrix = np.ndarray | Nested | Tensor | Factored[Any]

PerMatrix = Float64[Array, "*batch"] | np.float64
"""One number per matrix; a NumPy scalar for a single one."""


def read(matrix: Any, name: str) -> "Tensor | Factored":
    """The matrix as torch sees it, without copying; raises ValueError naming the argument where it is not a matrix."""
    return matrix if isinstance(matrix, Factored) else _tensor(matrix, name)


def factors(matrix: Factored) -> tuple[Tensor, Tensor]:
    """Both factors as torch tensors, whatever the caller handed in."""
    return matrix._left, matrix._right


def is_thin(matrix: "Tensor | Factored") -> TypeGuard[Factored]:
    """Whether the factors are smaller than their product, so that working on them pays."""
    return isinstance(matrix, Factored) and matrix.inner < min(matrix.shape[-2:])


def in_kind(result: Tensor, *inputs: Any) -> Any:
    """The result as NumPy if no input was torch, else as it is."""
    for given in inputs:
        if isinstance(given, Tensor) or (isinstance(given, Factored) and not given._numpy_out):
            return result
    return result.numpy()[()]  # [()] turns a 0-d array into a scalar that prints as a number


def require_finite(matrix: "Tensor | Factored", name: str) -> None:
    """Raise ValueError that says where the first NaN or infinity is."""
    parts = (
        {f"{name}.left": matrix._left, f"{name}.right": matrix._right}
        if isinstance(matrix, Factored)
        else {name: matrix}
    )
    for label, part in parts.items():
        bad = ~torch.isfinite(part)
        if bad.any():
            where = tuple(int(i) for i in bad.nonzero()[0])
            raise ValueError(
                f"{label} {_shape(part)} holds {float(part[where])} at index {where} "
                f"({int(bad.sum())} such entries in all): finite numbers are expected"
            )


def require_moderate(matrix: "Tensor | Factored", name: str) -> None:
    """Raise ValueError where a number is not finite, or so large that its square is not."""
    require_finite(matrix, name)
    parts = (matrix._left, matrix._right) if isinstance(matrix, Factored) else (matrix,)
    largest = max(float(part.abs().max()) for part in parts)
    if largest > 1e75:
        raise ValueError(f"{name} holds numbers up to {largest:g}: products of them overflow, rescale it first")


def require_same_shape(**matrices: "Tensor | Factored") -> None:
    """Raise ValueError if the last two axes of the named matrices differ."""
    shapes = {name: tuple(m.shape) for name, m in matrices.items()}
    if len({shape[-2:] for shape in shapes.values()}) > 1:
        raise ValueError(
            "these must have the same rows and columns: " + ", ".join(f"{n} is {s}" for n, s in shapes.items())
        )
    try:
        torch.broadcast_shapes(*(shape[:-2] for shape in shapes.values()))
    except RuntimeError:
        raise ValueError(
            "the leading axes do not broadcast: " + ", ".join(f"{n} is {s}" for n, s in shapes.items())
        ) from None


def _tensor(array: Any, name: str) -> Tensor:
    if isinstance(array, list | tuple) and any(isinstance(part, Tensor) for part in array):
        array = torch.stack([torch.as_tensor(part) for part in array])
    if isinstance(array, Tensor):
        tensor = array.detach()
        if tensor.layout != torch.strided:
            raise ValueError(f"{name} is stored as {tensor.layout}: an ordinary (strided) tensor is expected")
        if tensor.is_floating_point() and tensor.itemsize < 2:
            tensor = tensor.float()  # one-byte floats can be stored but not computed with
    else:
        try:
            given = np.asarray(array)
        except ValueError as error:
            raise ValueError(f"{name} is not a rectangular array: {error}") from None
        if given.dtype.kind not in "fiu":
            raise ValueError(f"{name} has dtype {given.dtype}: real floating-point numbers are expected")
        if given.dtype.itemsize > 8 or not given.dtype.isnative:
            given = given.astype(np.float64)
        # torch shares memory with any array but a read-only or reversed one; those are copied
        shareable = given.flags.writeable and all(stride >= 0 for stride in given.strides)
        tensor = torch.from_numpy(given if shareable else given.copy())
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"{name} has dtype {tensor.dtype}: real floating-point numbers are expected")
    if tensor.ndim < 2:
        raise ValueError(f"{name} has shape {_shape(tensor)}: a matrix [..., rows, columns] is expected")
    if 0 in tensor.shape:
        raise ValueError(f"{name} has shape {_shape(tensor)}: it is empty")
    return tensor


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
