"""Safe reader for pickles that contain only lists, tuples, dicts, strings and numbers.

Python's unpickler executes code from the file. This reader decodes the opcodes with `pickletools.genops`, runs the
harmless ones on its own stack and rejects the file at any other.
"""

import pickletools
from collections.abc import Callable
from pathlib import Path

from rru.data.errors import DataError
from rru.data.streams import data_errors, read_file

FILE_LIMIT = 1 << 25  # bytes
OPCODE_LIMIT = 6_000_000  # the largest data set, of 400,000 steps, has half as many
STACK_LIMIT = 1 << 16  # values that are not yet in a list; picklers write at most a thousand, or one tuple
OBJECT_LIMIT = 2_000_000  # allocated objects: tuples or lists of the steps, and their memo

_MARK = object()
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}
_NO_OPS = {"PROTO", "FRAME"}
_NO_ALLOCATION = {"MARK", "APPEND", "APPENDS", "SETITEM", "SETITEMS", *_GETS, *_NO_OPS}


class _StackMachine:
    """Runs the opcodes that build plain data."""

    def __init__(self) -> None:
        self.stack: list[object] = []
        self.memo: dict[object, object] = {}
        self.actions: dict[str, Callable[[], None]] = {
            "MARK": lambda: self.stack.append(_MARK),
            "EMPTY_LIST": lambda: self.stack.append([]),
            "EMPTY_TUPLE": lambda: self.stack.append(()),
            "EMPTY_DICT": lambda: self.stack.append({}),
            "LIST": lambda: self.stack.append(self.pop_to_mark()),
            "TUPLE": lambda: self.stack.append(tuple(self.pop_to_mark())),
            "DICT": lambda: self.put_items({}, self.pop_to_mark()),
            "TUPLE1": lambda: self.stack.append(tuple(self.pop(1))),
            "TUPLE2": lambda: self.stack.append(tuple(self.pop(2))),
            "TUPLE3": lambda: self.stack.append(tuple(self.pop(3))),
            "APPEND": lambda: self.extend(self.pop(1)),
            "APPENDS": lambda: self.extend(self.pop_to_mark()),
            "SETITEM": lambda: self.set_items(self.pop(2)),
            "SETITEMS": lambda: self.set_items(self.pop_to_mark()),
            "MEMOIZE": lambda: self.memo.__setitem__(len(self.memo), self.top()),
        }

    def top(self) -> object:
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("pops from an empty stack")
        return self.stack[-1]

    def pop(self, count: int) -> list[object]:
        taken = self.stack[-count:]
        if len(taken) < count or any(value is _MARK for value in taken):
            raise ValueError("pops from an empty stack")
        del self.stack[-count:]
        return taken

    def pop_to_mark(self) -> list[object]:
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is _MARK:
                taken = self.stack[at + 1 :]
                del self.stack[at:]
                return taken
        raise ValueError("needs a MARK on the stack")

    def extend(self, values: list[object]) -> None:
        target = self.top()
        if not isinstance(target, list):
            raise ValueError(f"needs a list, got {type(target).__name__}")
        target.extend(values)

    def set_items(self, pairs: list[object]) -> None:
        target = self.pop(1)[0]
        if not isinstance(target, dict):
            raise ValueError(f"needs a dict, got {type(target).__name__}")
        self.put_items(target, pairs)

    def put_items(self, target: dict[object, object], pairs: list[object]) -> None:
        if len(pairs) % 2 or not all(isinstance(key, str) for key in pairs[::2]):
            raise ValueError("needs pairs of string keys and values")
        target.update(zip(pairs[::2], pairs[1::2], strict=True))
        self.stack.append(target)

    def run(self, name: str, argument: object) -> bool:
        """Run one opcode. Return False if it is not supported."""
        if name in _VALUES:
            self.stack.append(argument)
        elif name in self.actions:
            self.actions[name]()
        elif name in _PUTS:
            self.memo[argument] = self.top()
        elif name in _GETS:
            if argument not in self.memo:
                raise ValueError(f"refers to memo {argument}, which does not exist")
            self.stack.append(self.memo[argument])
        else:
            return name in _NO_OPS
        return True


def read_pickle(path: Path) -> object:
    """Read plain data from a pickle. Raise DataError if it contains anything else."""
    data = read_file(path, FILE_LIMIT)
    machine, at, objects = _StackMachine(), 0, 0
    with data_errors(path, "pickle"):
        for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
            at = position or 0
            small = isinstance(argument, int) and opcode.name in _VALUES and 0 <= argument <= 256  # cached by Python
            objects += not small and opcode.name not in _NO_ALLOCATION
            if count > OPCODE_LIMIT or objects > OBJECT_LIMIT:
                reason = f"has more than {OPCODE_LIMIT} opcodes, or more than {OBJECT_LIMIT} objects"
                raise DataError(path, reason, f"offset {at}")
            if len(machine.stack) > STACK_LIMIT:
                raise DataError(path, f"has more than {STACK_LIMIT} values on its stack", f"offset {at}")
            if opcode.name == "STOP":
                return machine.pop(1)[0]
            _execute(machine, opcode.name, argument, path, f"offset {at}")
    raise DataError(path, "pickle is truncated: no STOP at the end", f"offset {at}")


def _execute(machine: _StackMachine, name: str, argument: object, path: Path, place: str) -> None:
    try:
        supported = machine.run(name, argument)
    except ValueError as error:
        raise DataError(path, f"damaged pickle: {name} {error}", place) from error
    if not supported:
        raise DataError(path, f"{name} is not allowed: only lists, tuples, dicts, strings and numbers are read", place)
