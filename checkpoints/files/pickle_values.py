"""What a pickle that is read as data may be made of, beside numbers, texts and containers; and how its reading ends."""

from collections.abc import Callable, Mapping
from typing import Any


class ForbiddenError(ValueError):
    """The pickle names something that is not data; the name is the message."""


class BrokenError(ValueError):
    """The instructions make no sense, or too much."""


class EndedError(BrokenError):
    """The bytes end before the pickle does."""


class Function:
    """What a name stands for where it makes something of arguments; `make` is ours and makes plain data."""

    __slots__ = ("make", "name")

    def __init__(self, name: str, make: Callable[..., Any]) -> None:
        self.name, self.make = name, make

    def __repr__(self) -> str:
        """Its name, which is what a message is about."""
        return self.name


class Fields:
    """What was an object of some class: the name of the class and the attributes, as data."""

    __slots__ = ("fields", "kind")

    def __init__(self, kind: str) -> None:
        self.kind, self.fields = kind, {}

    def set_state(self, state: Any) -> None:
        """Take over what the object kept; a state that is no table is kept as it is, under ""."""
        self.fields = state if isinstance(state, dict) else {"": state}

    def __repr__(self) -> str:
        """The class and how much there is, never the content, which may hold itself."""
        return f"{self.kind} with {len(self.fields)} fields"


Names = Mapping[str, Any]
"""What the names in a pickle stand for, "module.name": a `Function`, or a constant."""
