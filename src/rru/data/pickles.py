"""Plain data from pickles without unpickling: lists, tuples, dicts, strings and numbers, nothing else.

Python's own unpickler runs what a file tells it to. Here the instructions are only listed (`pickletools.genops`) and
the harmless ones carried out on a stack of our own; at any other the file is refused.
"""

import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rru.data.errors import DataError
from rru.data.streams import reading, whole_file

FILE_LIMIT = 1 << 26  # bytes
OPCODE_LIMIT = 20_000_000
OBJECT_LIMIT = 5_000_000  # what takes memory of its own; the largest set has a few hundred thousand steps

_MARK = object()
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}
_NOTHING = {"PROTO", "FRAME"}
_CHEAP = {"MARK", "APPEND", "APPENDS", "SETITEM", "SETITEMS", *_GETS, *_NOTHING}  # make nothing new


class _Machine:
    """A stack, and the few instructions that build plain data on it."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.actions: dict[str, Callable[[], None]] = {
            "MARK": lambda: self.stack.append(_MARK),
            "EMPTY_LIST": lambda: self.stack.append([]),
            "EMPTY_TUPLE": lambda: self.stack.append(()),
            "EMPTY_DICT": lambda: self.stack.append({}),
            "LIST": lambda: self.stack.append(self.to_mark()),
            "TUPLE": lambda: self.stack.append(tuple(self.to_mark())),
            "DICT": lambda: self.put_items({}, self.to_mark()),
            "TUPLE1": lambda: self.stack.append(tuple(self.pop(1))),
            "TUPLE2": lambda: self.stack.append(tuple(self.pop(2))),
            "TUPLE3": lambda: self.stack.append(tuple(self.pop(3))),
            "APPEND": lambda: self.extend(self.pop(1)),
            "APPENDS": lambda: self.extend(self.to_mark()),
            "SETITEM": lambda: self.set_items(self.pop(2)),
            "SETITEMS": lambda: self.set_items(self.to_mark()),
            "MEMOIZE": lambda: self.memo.__setitem__(len(self.memo), self.top()),
        }

    def top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("takes from an empty stack")
        return self.stack[-1]

    def pop(self, count: int) -> list[Any]:
        taken = self.stack[-count:]
        if len(taken) < count or any(value is _MARK for value in taken):
            raise ValueError("takes from an empty stack")
        del self.stack[-count:]
        return taken

    def to_mark(self) -> list[Any]:
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is _MARK:
                taken = self.stack[at + 1 :]
                del self.stack[at:]
                return taken
        raise ValueError("looks for a mark that is not there")

    def extend(self, values: list[Any]) -> None:
        target = self.top()
        if not isinstance(target, list):
            raise ValueError(f"appends to a {type(target).__name__}")
        target.extend(values)

    def set_items(self, pairs: list[Any]) -> None:
        target = self.pop(1)[0]
        if not isinstance(target, dict):
            raise ValueError(f"sets an item of a {type(target).__name__}")
        self.put_items(target, pairs)

    def put_items(self, target: dict[str, Any], pairs: list[Any]) -> None:
        if len(pairs) % 2 or not all(isinstance(key, str) for key in pairs[::2]):
            raise ValueError("keys of a dict must be strings, one to a value")
        target.update(zip(pairs[::2], pairs[1::2], strict=True))
        self.stack.append(target)

    def run(self, name: str, argument: Any) -> bool:
        """Carries out one instruction; False if it is not one of the harmless ones."""
        if name in _VALUES:
            self.stack.append(argument)
        elif name in self.actions:
            self.actions[name]()
        elif name in _PUTS:
            self.memo[argument] = self.top()
        elif name in _GETS:
            if argument not in self.memo:
                raise ValueError(f"refers to object {argument}, which is not there")
            self.stack.append(self.memo[argument])
        else:
            return name in _NOTHING
        return True


def read_pickle(path: Path) -> Any:
    """The plain data in a pickle; a DataError if it holds, or asks for, anything else."""
    data = whole_file(path, FILE_LIMIT)
    machine, at, objects = _Machine(), 0, 0
    with reading(path, "pickle"):
        for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
            at = position or 0
            small = isinstance(argument, int) and opcode.name in _VALUES and 0 <= argument <= 256  # Python keeps these
            objects += not small and opcode.name not in _CHEAP
            if count > OPCODE_LIMIT or objects > OBJECT_LIMIT:
                reason = f"has more than {OPCODE_LIMIT} instructions, or makes more than {OBJECT_LIMIT} objects"
                raise DataError(path, reason, f"offset {at}")
            if opcode.name == "STOP":
                return machine.pop(1)[0]
            _carry_out(machine, opcode.name, argument, path, f"offset {at}")
    raise DataError(path, "pickle ends without STOP", f"offset {at}")


def _carry_out(machine: _Machine, name: str, argument: Any, path: Path, place: str) -> None:
    try:
        harmless = machine.run(name, argument)
    except ValueError as error:
        raise DataError(path, f"damaged pickle: {name} {error}", place) from error
    if not harmless:
        raise DataError(path, f"{name} is refused: only lists, tuples, dicts, strings and numbers are allowed", place)
