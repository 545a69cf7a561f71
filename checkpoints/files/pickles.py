"""A pickle read as data: its instructions are followed by a small machine of our own that can run nothing.

A pickle is a program that may name any function and call it. Here a name stands for something only if the caller's
list (`Names`) says for what: a constant, or a function of ours that makes plain data of its arguments. Any other name
ends the reading, by that name. The machine makes containers, numbers and texts, and counts what they cost: a pickle
that would grow to more than four times the bytes that came with it (and 16 MB) is refused, as are numbers of thousands
of digits and keys that are made to collide. Time is linear in the pickle.
"""

import struct
import sys
from collections.abc import Callable
from typing import Any

from checkpoints.files.pickle_values import BrokenError, EndedError, ForbiddenError, Function, Names

FLOOR = 16_000_000
"""Bytes that a pickle may always grow to."""

LARGEST_KEY = 1 << 60
"""Larger whole numbers can be chosen so that all of them land in one place of a table."""

MOST_TUPLE_KEYS = 10_000

COSTS = [40] * 256
"""What following an instruction costs, in bytes, on the side of too much; texts and items of tables come on top."""
for _codes, _cost in {
    b"N\x88\x89)hjK0.\x80\x95": 8,
    b"G": 24,
    b"MJ": 32,
    b"]}(tld": 80,
    b"qr\x94": 100,
    b"\x8f\x91RQb\x81\x92": 240,
}.items():
    for _code in _codes:
        COSTS[_code] = _cost

_ENDS = "it ends before its pickle does"


class Machine:
    """Follows the instructions of one pickle; `load` gives what it makes, `at` is then where it ends."""

    def __init__(
        self, content: bytes, names: Names, persistent: Callable[[Any], Any] | None = None, given: int = 0, at: int = 0
    ) -> None:
        self.content, self.names, self.persistent, self.at = content, names, persistent, at
        self.budget = FLOOR + 4 * max(given, len(content))
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.tuple_keys = 0
        self.result: Any = None
        self.is_done = False

    def load(self) -> Any:
        """What the pickle holds. Raises ForbiddenError or BrokenError."""
        try:
            self._follow()
        except (IndexError, KeyError, UnicodeDecodeError, TypeError, AttributeError, OverflowError) as error:
            if isinstance(error, IndexError) and self.at >= len(self.content):
                raise EndedError(_ENDS) from None
            raise BrokenError(f"its pickle makes no sense at byte {self.at} ({type(error).__name__})") from None
        except struct.error:
            raise EndedError(_ENDS) from None
        return self.result

    def _follow(self) -> None:
        """The loop. The instructions that tensors and lists of numbers are made of are followed on the spot."""
        content, size, memo, costs = self.content, len(self.content), self.memo, COSTS
        while not self.is_done:
            if self.at >= size:
                raise EndedError(_ENDS)
            at = self.at
            code = content[at]
            self.at = at + 1
            self.budget -= costs[code]
            if self.budget < 0:
                raise BrokenError("its pickle makes far more objects than a file of this size should hold")
            if code == 0x71:  # q, BINPUT
                memo[content[at + 1]] = self.stack[-1]
                self.at = at + 2
            elif code == 0x4B:  # K, BININT1
                self.stack.append(content[at + 1])
                self.at = at + 2
            elif code == 0x68:  # h, BINGET
                self.stack.append(memo[content[at + 1]])
                self.at = at + 2
            elif code == 0x28:  # (, MARK
                self.marks.append(self.stack)
                self.stack = []
            elif code == 0x74:  # t, TUPLE
                items, self.stack = self.stack, self.marks.pop()
                self.stack.append(tuple(items))
                self.budget -= 8 * len(items)
            elif code == 0x58 or code == 0x8C:  # X, BINUNICODE, and its short form
                begin = at + (5 if code == 0x58 else 2)
                self.at = end = begin + int.from_bytes(content[at + 1 : begin], "little")
                if end > size:
                    raise EndedError(_ENDS)
                text = content[begin:end].decode("utf-8", "surrogatepass")
                self.stack.append(text)
                self.budget -= sys.getsizeof(text)
            elif 0x85 <= code <= 0x87:  # TUPLE1, TUPLE2, TUPLE3
                count = code - 0x84
                if len(self.stack) < count:
                    raise BrokenError("its pickle takes more than it made")
                self.stack[-count:] = [tuple(self.stack[-count:])]
                self.budget -= 48
            elif code == 0x72:  # r, LONG_BINPUT
                memo[_U4.unpack_from(content, at + 1)[0]] = self.stack[-1]
                self.at = at + 5
            elif code == 0x6A:  # j, LONG_BINGET
                self.stack.append(memo[_U4.unpack_from(content, at + 1)[0]])
                self.at = at + 5
            elif code == 0x94:  # MEMOIZE
                memo[len(memo)] = self.stack[-1]
            elif code == 0x47:  # G, BINFLOAT
                self.stack.append(_F8.unpack_from(content, at + 1)[0])
                self.at = at + 9
            elif code == 0x4A or code == 0x4D:  # J, BININT, and M, BININT2
                form = _I4 if code == 0x4A else _U2
                self.stack.append(form.unpack_from(content, at + 1)[0])
                self.at = at + 1 + form.size
            elif code in CONSTANTS:
                self.stack.append(CONSTANTS[code])
            elif code in FRESH:
                self.stack.append(FRESH[code]())
            elif code in INSTRUCTIONS:
                INSTRUCTIONS[code](self)
            else:
                raise BrokenError(f"instruction {content[at : at + 1]!r} is none that data needs")

    def take(self, length: int) -> bytes:
        """The next bytes; they are paid for."""
        start = self.at
        self.at = stop = start + length
        if stop > len(self.content):
            raise EndedError(_ENDS)
        self.budget -= length
        return self.content[start:stop]

    def number(self, form: struct.Struct) -> Any:
        """The next number of this form."""
        return form.unpack(self.take(form.size))[0]

    def line(self) -> str:
        """The next line of text."""
        end = self.content.find(b"\n", self.at, self.at + 4096)
        if end < 0:
            raise EndedError(_ENDS)
        start, self.at = self.at, end + 1
        return self.content[start:end].decode()

    def above_mark(self) -> list[Any]:
        """What was pushed since the last mark, taken off."""
        items, self.stack = self.stack, self.marks.pop()
        return items

    def named(self, name: str) -> None:
        """Push what a name stands for."""
        name = name.replace("__builtin__.", "builtins.", 1) if name.startswith("__builtin__.") else name
        if name not in self.names:
            raise ForbiddenError(name)
        self.stack.append(self.names[name])

    def key(self, key: Any) -> Any:
        """A key, if it is of a kind that nobody can make collide."""
        kind = type(key)
        if kind is str or kind is bool or kind is float or kind is bytes or key is None:
            return key
        if kind is int and -LARGEST_KEY < key < LARGEST_KEY:
            return key
        if kind is tuple and len(key) < 100 and not any(type(item) is tuple for item in key):
            self.tuple_keys += 1
            if self.tuple_keys <= MOST_TUPLE_KEYS:
                return tuple(self.key(item) for item in key)
        if type(key).__hash__ is object.__hash__ or kind.__module__ == "torch":  # by identity, or a constant of torch
            return key
        raise BrokenError(f"its pickle has a {kind.__name__} as a key, which data does not need")

    def set_items(self, items: list[Any]) -> None:
        """Keys and values, in turn, into the table on top."""
        table = self.stack[-1]
        if type(table) is not dict or len(items) % 2:
            raise BrokenError(f"its pickle sets items of a {type(table).__name__}")
        self.budget -= 200 + 32 * len(items)
        for i in range(0, len(items), 2):
            table[self.key(items[i])] = items[i + 1]

    def append_items(self, items: list[Any]) -> None:
        """Values, at the end of the list on top."""
        if type(self.stack[-1]) is not list:
            raise BrokenError(f"its pickle appends to a {type(self.stack[-1]).__name__}")
        self.budget -= 9 * len(items)
        self.stack[-1].extend(items)

    def add_items(self, items: list[Any]) -> None:
        """Values into the set on top."""
        if type(self.stack[-1]) is not set:
            raise BrokenError(f"its pickle adds to a {type(self.stack[-1]).__name__}")
        self.budget -= 64 * len(items)
        self.stack[-1].update(self.key(item) for item in items)

    def call(self, arguments: Any) -> None:
        """Replace the function on top by what it makes of these arguments."""
        function = self.stack.pop()
        if type(function) is not Function:
            raise BrokenError(f"its pickle calls a {type(function).__name__}")
        if type(arguments) is not tuple:
            raise BrokenError(f"its pickle calls {function.name} with a {type(arguments).__name__}")
        self.stack.append(function.make(*arguments))

    def build(self) -> None:
        """Give an object its state; a table's own attributes (`_metadata` of a state dict) are left out."""
        state = self.stack.pop()
        made = self.stack[-1]
        if hasattr(made, "set_state"):
            made.set_state(state)
        elif type(made) is not dict:
            raise BrokenError(f"its pickle gives a {type(made).__name__} a state")

    def global_by_stack(self) -> None:
        """Push what the name on the stack stands for."""
        name, module = self.stack.pop(), self.stack.pop()
        if type(name) is not str or type(module) is not str:
            raise BrokenError("its pickle names something by what is not text")
        self.named(f"{module}.{name}")

    def persistent_load(self) -> None:
        """Replace what says where bytes are by what the file has there."""
        if self.persistent is None:
            raise ForbiddenError("a persistent id")
        self.stack.append(self.persistent(self.stack.pop()))

    def new_object_with_keywords(self) -> None:
        """Make something of a function and arguments; of keywords there may be none."""
        if self.stack.pop():
            raise BrokenError("its pickle makes an object with keywords")
        self.call(self.stack.pop())

    def set_above_mark(self) -> None:
        """The group as a set; one that was frozen thaws."""
        items = self.above_mark()
        self.stack.append(set())
        self.add_items(items)

    def dictionary_above_mark(self) -> None:
        """The group as a table."""
        items = self.above_mark()
        self.stack.append({})
        self.set_items(items)

    def stop(self) -> None:
        """The end: what is on top is the result."""
        self.result, self.is_done = self.stack.pop(), True


_U1, _U2, _I4, _U4, _U8, _F8 = map(struct.Struct, ("<B", "<H", "<i", "<I", "<Q", ">d"))

CONSTANTS = {ord("N"): None, 0x88: True, 0x89: False, ord(")"): ()}
FRESH: dict[int, type] = {ord("]"): list, ord("}"): dict, 0x8F: set}

INSTRUCTIONS: dict[int, Callable[[Machine], Any]] = {
    ord(byte): meaning
    for byte, meaning in {
        "Q": Machine.persistent_load,
        "R": lambda m: m.call(m.stack.pop()),
        "\x81": lambda m: m.call(m.stack.pop()),
        "\x92": Machine.new_object_with_keywords,
        "c": lambda m: m.named(f"{m.line()}.{m.line()}"),
        "\x93": Machine.global_by_stack,
        "b": Machine.build,
        "\x91": Machine.set_above_mark,
        "\x8a": lambda m: m.stack.append(int.from_bytes(m.take(m.number(_U1)), "little", signed=True)),
        "\x8d": lambda m: m.stack.append(m.take(m.number(_U8)).decode("utf-8", "surrogatepass")),
        "U": lambda m: m.stack.append(m.take(m.number(_U1)).decode()),
        "T": lambda m: m.stack.append(m.take(m.number(_U4)).decode()),
        "B": lambda m: m.stack.append(m.take(m.number(_U4))),
        "C": lambda m: m.stack.append(m.take(m.number(_U1))),
        "\x8e": lambda m: m.stack.append(m.take(m.number(_U8))),
        "\x96": lambda m: m.stack.append(m.take(m.number(_U8))),
        "s": lambda m: m.set_items([m.stack.pop(), m.stack.pop()][::-1]),
        "u": lambda m: m.set_items(m.above_mark()),
        "a": lambda m: m.append_items([m.stack.pop()]),
        "e": lambda m: m.append_items(m.above_mark()),
        "\x90": lambda m: m.add_items(m.above_mark()),
        "d": Machine.dictionary_above_mark,
        "l": lambda m: m.stack.append(m.above_mark()),
        "0": lambda m: m.stack.pop(),
        "1": lambda m: m.above_mark(),
        "\x80": lambda m: m.number(_U1),
        "\x95": lambda m: m.number(_U8),
        ".": Machine.stop,
    }.items()
}
"""What each of the other bytes means. Left out: what protocols 0 and 1 wrote as text, INST and OBJ, extensions."""
