"""What the names in the pickle of torch.save stand for: descriptions of tensors, and plain data.

No tensor is made here. A tensor is described (`TensorRecord`: which storage, from where, which shape and strides) and
read later, by its range. The list of names is the whole of what is understood; beside torch's own it has containers,
NumPy's numbers and arrays, argparse.Namespace, whose attributes are data, and what DeepSpeed keeps of a loss scaler.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from checkpoints.files.pickle_values import BrokenError, Fields, Function
from checkpoints.files.pickles import LARGEST_KEY

DIMENSIONS = 64
LARGEST = 1 << 62

_KNOWN = """bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 complex32 complex64
complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"""
DTYPES = {name: getattr(torch, name) for name in _KNOWN.split() if hasattr(torch, name)}

STORAGES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8,
    "Bool": torch.bool, "ComplexFloat": torch.complex64, "ComplexDouble": torch.complex128,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StorageType:
    """The type of a storage; dtype None is bytes that the tensor gives a type."""

    dtype: torch.dtype | None


@dataclass(frozen=True, slots=True)
class Storage:
    """A run of bytes in the file, that tensors are views of."""

    key: str
    dtype: torch.dtype | None
    bytes: int


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor as its pickle describes it: a view of a storage. Nothing of it is believed before `checked`."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: Storage
    conjugate: bool = False
    negative: bool = False

    def set_state(self, state: Any) -> None:
        """What a parameter kept beside its values is not read."""

    @property
    def bytes(self) -> int:
        """How much there is of it."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def span(self) -> tuple[int, int]:
        """From which to which byte of its storage it reaches."""
        if 0 in self.shape:
            return 0, 0
        last = self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True))
        return self.offset * self.dtype.itemsize, (last + 1) * self.dtype.itemsize

    def fault(self) -> str | None:
        """Why it cannot be what it says, None if it can."""
        if self.span[1] > self.storage.bytes:
            return f"shape {self.shape} reaches to byte {self.span[1]} of a storage of {self.storage.bytes}"
        if self.bytes > 4 * self.storage.bytes + 65_536:
            return (
                f"shape {self.shape} repeats a storage of {self.storage.bytes} bytes to {self.bytes}: an expanded "
                "tensor. Call .contiguous() before saving it"
            )
        return None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A tensor of a kind that is not read; the reason is said where somebody asks for it by name."""

    reason: str

    def set_state(self, state: Any) -> None:
        """Left out."""


@dataclass(slots=True)
class Array:
    """A NumPy array: bytes of a pickle with a type and a shape."""

    values: Any = field(default=None, repr=False)

    def set_state(self, state: Any) -> None:
        """Version, shape, dtype, whether by columns, bytes: what NumPy keeps."""
        if type(state) is not tuple or len(state) != 5 or type(state[2]) is not Dtype:
            raise BrokenError("a NumPy array in its pickle makes no sense")
        _, shape, dtype, by_columns, content = state
        kind, shape = dtype.numpy(), _sizes(shape, "the shape of an array")
        if type(content) is list:  # of objects, which have no bytes
            raise BrokenError("it holds a NumPy array of objects")
        content = content if type(content) is bytes else content.encode("latin1")
        if math.prod(shape) * kind.itemsize != len(content):
            raise BrokenError(f"a NumPy array of shape {shape} in its pickle has {len(content)} bytes")
        values = np.frombuffer(content, kind)
        self.values = values.reshape(shape, order="F" if by_columns else "C")


@dataclass(slots=True)
class Dtype:
    """A NumPy dtype: its letters, and the byte order that its state says."""

    letters: str
    order: str = "<"

    def set_state(self, state: Any) -> None:
        """Version and byte order; structured types have more, and are not read."""
        if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", ">", "|", "=") or any(state[2:5]):
            raise BrokenError("a NumPy dtype in its pickle makes no sense")
        self.order = state[1]

    def numpy(self) -> np.dtype:
        """The dtype, if it is one of plain numbers."""
        if self.letters[:1] not in tuple("biufcUS") or not self.letters[1:].isdigit() or len(self.letters) > 6:
            raise BrokenError(f"it holds a NumPy array of {self.letters!r}")
        try:
            return np.dtype(self.order + self.letters)
        except TypeError:
            raise BrokenError(f"it holds a NumPy array of {self.letters!r}") from None


def _sizes(sizes: Any, what: str) -> tuple[int, ...]:
    if type(sizes) not in (tuple, list) or len(sizes) > DIMENSIONS:
        raise BrokenError(f"{what} is not a few whole numbers")
    if not all(type(size) is int and 0 <= size < LARGEST for size in sizes):
        raise BrokenError(f"{what} is not made of whole numbers that a file can hold")
    return tuple(sizes)


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any, dtype: Any = None) -> TensorRecord | Unreadable:
    if type(storage) is Unreadable:
        return storage
    if type(storage) is not Storage:
        raise BrokenError(f"a tensor in its pickle is made of a {type(storage).__name__}")
    (offset,) = _sizes((offset,), "where a tensor begins")
    shape, stride = _sizes(size, "the shape of a tensor"), _sizes(stride, "the strides of a tensor")
    dtype = dtype or storage.dtype
    if len(shape) != len(stride) or not isinstance(dtype, torch.dtype):
        raise BrokenError(f"a tensor in its pickle has shape {shape}, strides {stride} and dtype {dtype}")
    return TensorRecord(dtype, shape, stride, offset, storage)


def _tensor_v2(*arguments: Any) -> TensorRecord | Unreadable:
    return _with_metadata(_tensor(*arguments[:6]), arguments[6:])


def _tensor_v3(*arguments: Any) -> TensorRecord | Unreadable:
    if type(arguments[6]) is Unreadable:
        return arguments[6]
    return _with_metadata(_tensor(*arguments[:6], dtype=arguments[6]), arguments[7:])


def _with_metadata(tensor: TensorRecord | Unreadable, metadata: tuple) -> TensorRecord | Unreadable:
    """A view of the conjugate, or of the negative, is said beside the values."""
    if not metadata or not metadata[0] or isinstance(tensor, Unreadable):
        return tensor
    if type(metadata[0]) is not dict or set(metadata[0]) - {"conj", "neg"}:
        raise BrokenError("a tensor in its pickle has properties that are not known")
    return replace(tensor, conjugate=bool(metadata[0].get("conj")), negative=bool(metadata[0].get("neg")))


def _from_type(function: Any, kind: Any, arguments: Any, *_: Any) -> Any:
    """A tensor with attributes, or of a class of torch's: the values without what stands beside them."""
    if type(function) is not Function or type(arguments) is not tuple or not function.name.startswith("torch."):
        raise BrokenError("a tensor in its pickle is made by something else")
    return function.make(*arguments)


def _same(value: Any, *_: Any) -> Any:
    """A parameter is the tensor that it holds."""
    if type(value) not in (TensorRecord, Unreadable):
        raise BrokenError(f"a parameter in its pickle is a {type(value).__name__}")
    return value


def _converted(value: Any, dtype: Any, *_: Any) -> Any:
    value = _same(value)
    if type(value) is TensorRecord and value.dtype != dtype:
        return Unreadable(f"a tensor of {dtype} kept as {value.dtype}")
    return value


def _table(pairs: Any = ()) -> dict:
    if pairs:
        raise BrokenError("its pickle makes a table of what is not empty")
    return {}


def _size(sizes: Any = ()) -> tuple[int, ...]:
    return _sizes(sizes, "a torch.Size")


def _bytes(text: Any = "", encoding: Any = "latin1") -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise BrokenError("its pickle encodes what is not bytes")
    return text.encode("latin1", "replace")


def _bytearray(content: Any = b"", encoding: Any = "latin1") -> bytes:
    """Bytes of bytes; a length alone would be zeros out of nothing."""
    if type(content) is bytes:
        return content
    if type(content) is str:
        return _bytes(content, encoding)
    raise BrokenError(f"its pickle makes a bytearray of a {type(content).__name__}: memory that holds nothing")


def _set(items: Any = ()) -> set:
    for item in items if type(items) in (list, tuple) else (None,):
        if type(item) not in (str, float, bool, bytes, int) or (type(item) is int and abs(item) >= LARGEST_KEY):
            raise BrokenError("its pickle makes a set of what is neither text nor numbers")
    return set(items)


def _complex(real: Any, imaginary: Any) -> complex:
    return complex(float(real), float(imaginary))


def _dtype(letters: Any, *_: Any) -> Dtype:
    if type(letters) is not str:
        raise BrokenError("a NumPy dtype in its pickle makes no sense")
    return Dtype(letters)


def _scalar(dtype: Any, content: Any) -> Any:
    """A NumPy number as Python's."""
    if type(dtype) is not Dtype or type(content) is not bytes or len(content) != dtype.numpy().itemsize:
        raise BrokenError("a NumPy number in its pickle makes no sense")
    return np.frombuffer(content, dtype.numpy())[0].item()


def _array(*_: Any) -> Array:
    return Array()


def _unreadable(what: str) -> Any:
    return lambda *_: Unreadable(what)


def _names() -> dict[str, Any]:
    functions = {
        "collections.OrderedDict": _table,
        "builtins.dict": _table,
        "builtins.set": _set,
        "builtins.frozenset": _set,
        "builtins.bytearray": _bytearray,
        "builtins.complex": _complex,
        "_codecs.encode": _bytes,
        "argparse.Namespace": lambda: Fields("argparse.Namespace"),
        "torch.Size": _size,
        "torch.device": lambda *parts: ":".join(map(str, parts[:2])),
        "torch.serialization._get_layout": str,
        "torch.nn.parameter.Parameter": _same,
        "torch._utils._rebuild_tensor": _tensor,
        "torch._utils._rebuild_tensor_v2": _tensor_v2,
        "torch._utils._rebuild_tensor_v3": _tensor_v3,
        "torch._utils._rebuild_parameter": _same,
        "torch._utils._rebuild_parameter_with_state": _same,
        "torch._tensor._rebuild_from_type_v2": _from_type,
        "torch._utils._rebuild_device_tensor_from_cpu_tensor": _converted,
        "torch._utils._rebuild_qtensor": _unreadable("quantised; dequantise it before saving"),
        "torch._utils._rebuild_sparse_tensor": _unreadable("sparse; call .to_dense() before saving"),
        "torch._utils._rebuild_nested_tensor": _unreadable("a nested tensor; save its parts"),
        "torch._utils._rebuild_meta_tensor_no_storage": _unreadable("on the meta device: its values were not saved"),
        "torch._utils._rebuild_wrapper_subclass": _unreadable("of a subclass of torch.Tensor"),
        "numpy.dtype": _dtype,
        "deepspeed.runtime.fp16.loss_scaler.LossScaler": lambda *_: Fields("LossScaler"),
        "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler": lambda *_: Fields("DynamicLossScaler"),
        "deepspeed.runtime.zero.config.ZeroStageEnum": lambda stage: stage,
    }
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        functions[f"{module}.scalar"], functions[f"{module}._reconstruct"] = _scalar, _array
    names: dict[str, Any] = {name: Function(name, make) for name, make in functions.items()}
    names["torch.Tensor"], names["numpy.ndarray"] = "torch.Tensor", "numpy.ndarray"  # the first of some arguments
    names |= {f"torch.{name}": dtype for name, dtype in DTYPES.items()}
    for module in ("torch", "torch.cuda"):
        names |= {f"{module}.{name}Storage": StorageType(dtype) for name, dtype in STORAGES.items()}
        for name in ("QInt8", "QUInt8", "QInt32", "QUInt4x2", "QUInt2x4"):
            names[f"{module}.{name}Storage"] = Unreadable("quantised; dequantise it before saving")
    names |= {f"torch.storage.{name}": StorageType(None) for name in ("UntypedStorage", "_UntypedStorage")}
    schemes = ("per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric")
    names |= {f"torch.{scheme}": scheme for scheme in (*schemes, "per_channel_affine_float_qparams")}
    return names


NAMES = _names()


def storage_of(identifier: Any) -> Storage | Unreadable:
    """What a persistent id says: ("storage", type, key, device, how many elements)."""
    if type(identifier) is not tuple or len(identifier) < 5 or identifier[0] != "storage":
        raise BrokenError("its pickle refers to something that is not a storage")
    _, kind, key, _, count = identifier[:5]
    if type(kind) is Unreadable:
        return kind
    if type(kind) is not StorageType or type(key) is not str or type(count) is not int or not 0 <= count < LARGEST:
        raise BrokenError("a storage in its pickle makes no sense")
    return Storage(key, kind.dtype, count * (kind.dtype.itemsize if kind.dtype else 1))
