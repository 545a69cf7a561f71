"""What tells one function from another: by what it does, not by where it stands.

Numbers of two functions under one name must never be joined, so a measurement that is taken up again asks whether its
probes are still the same. A function is known by its code, its defaults, what it has closed over and the globals that
it names; those of libraries are known by their own code, and what these call by name. It is not known by its file or
line, which change when the cell above it does.
"""

import hashlib
import pickle
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any


def fingerprint(function: Callable[..., Any]) -> str:
    """Sixteen letters that change when the function does."""
    return hashlib.sha256(repr(_content(function, set())).encode()).hexdigest()[:16]


def _content(value: Any, seen: set[int]) -> Any:
    if id(value) in seen:
        return "seen"  # it calls itself
    if isinstance(value, ModuleType):
        return "module", value.__name__
    if isinstance(value, partial):
        return "partial", *(_content(part, seen) for part in (value.func, value.args, value.keywords))
    if isinstance(value, MethodType):
        return "method", _content(value.__func__, seen), _content(value.__self__, seen)
    if isinstance(value, FunctionType):
        seen = {*seen, id(value)}
        named = {name: value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__}
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return (
            _code(value.__code__),
            *(_content(part, seen) for part in (value.__defaults__, value.__kwdefaults__, cells)),
            {name: _global(part, seen) for name, part in sorted(named.items())},
        )
    if isinstance(value, BuiltinFunctionType | type):
        return value.__module__, value.__qualname__
    if isinstance(value, list | tuple):
        return [_content(part, seen) for part in value]
    if isinstance(value, dict):
        return {str(name): _content(part, seen) for name, part in value.items()}
    if callable(value) and hasattr(value, "__dict__"):
        return type(value).__qualname__, _content(vars(value), {*seen, id(value)})
    return _pickled(value)


def _global(value: Any, seen: set[int]) -> Any:
    """What a function names: all of it where it belongs to a script or a notebook; its own code where to a module."""
    home = getattr(value, "__module__", None)
    if isinstance(value, FunctionType) and home not in (None, "__main__"):
        return home, value.__qualname__, _code(value.__code__)
    return _content(value, seen)


def _code(code: CodeType) -> Any:
    constants = [_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


def _names(code: CodeType) -> set[str]:
    inner = [_names(one) for one in code.co_consts if isinstance(one, CodeType)]
    return {*code.co_names}.union(*inner)


def _pickled(value: Any) -> Any:
    try:
        return hashlib.sha256(pickle.dumps(value)).hexdigest()
    except Exception:  # what cannot be told apart is never the same
        return f"{type(value).__qualname__} at {id(value)}"
