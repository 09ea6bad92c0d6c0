"""Fuzz every function of the native library: recorded calls of layers, with some numbers or sizes changed."""

import ctypes
import random
from array import array
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from unittest import mock

import torch

import rru
from rru.scan import thresholds
from rru.scan.native import library
from tests.variants import NATIVE

ODD = (0, 1, 2, 3, -1, 2**28, 2**28 + 1, 2**30, 2**31 - 1, 2**31, 2**32 + 1, 2**62, -(2**63))
GUARDS = (64, 0)  # bytes before and after each tensor: they show writes; without them, a sanitizer shows reads too
FILL = 0xA5


def always_wide() -> AbstractContextManager[object]:
    """Make RRUs with dropout use their wide form, at any size."""
    always = {"MIN_WIDE_WIDTH": 0, "MAX_WIDE_EXTRA": 1e9, "MAX_WIDE_EXTRA_SELECTED": 1e9}
    return mock.patch.multiple(thresholds, **always)


@dataclass(frozen=True)
class Call:
    """A call of a native function: its name, its numbers by name, and the contents of its tensors."""

    name: str
    numbers: dict[str, int]
    tensors: tuple[bytes, ...]

    @property
    def function(self) -> str:
        """Its name without type and instruction set."""
        return self.name.rsplit("_", 2)[0]


def _record(into: dict[tuple[object, ...], Call], function: library.Function, memory: "array[int]") -> None:
    names = function._names.decode().split()
    numbers = dict(zip(names, function._numbers, strict=True))
    sizes = tuple(memory[1::2])
    key = (function._name, tuple(size == 0 for size in sizes), len(sizes), numbers.get("reverse"), numbers.get("save"))
    if key not in into:
        contents = [
            ctypes.string_at(place, size) if size else b"" for place, size in zip(memory[::2], sizes, strict=True)
        ]
        into[key] = Call(function._name, numbers, tuple(contents))


@cache
def calls() -> dict[str, list[Call]]:
    """Record calls of each function: small layers of every kind, forward and backward, quantized and rounded too."""
    found: dict[tuple[object, ...], Call] = {}
    original = library.Function.__call__

    def record(self: library.Function, memory: "array[int]") -> None:
        _record(found, self, memory)
        original(self, memory)

    torch.manual_seed(0)
    with mock.patch.object(library.Function, "__call__", record):
        for variant in NATIVE:
            for dtype in (torch.float32, torch.float64):
                for width, batch in ((4, 2), (150, 3)):  # narrow layers have separate gradients
                    _use(variant.build(3, width, dtype=dtype, bidirectional=True), batch, dtype)
                    _reset(variant.build(3, width, dtype=dtype), batch, dtype)
            if "mogrifier" not in variant.name:
                quantized = rru.quantize(variant.build(5, 6, dtype=torch.float32).eval())
                with torch.no_grad():
                    quantized(torch.randn(3, 2, 5))
                    quantized(torch.randn(3, 2, 5), lengths=torch.tensor([3, 1]))
                    quantized(torch.randn(3, 2, 5), resets=torch.rand(3, 2) < 0.5)
        with always_wide():
            for dtype in (torch.float32, torch.float64):
                for dropout in (0.5, 0.8):  # computes all of Eq. 1, or only a part
                    _use(rru.RRU(3, 4, dtype=dtype, bidirectional=True, dropout=dropout), 6, dtype)
                    _reset(rru.RRU(3, 4, dtype=dtype, dropout=dropout), 6, dtype)
        for name in ("exp", "sigmoid", "tanh"):
            tensors = [torch.randn(9), torch.empty(9)]
            library.Function(name, torch.float32, {"size": 9})(library.memory_of(tensors))
    by_function: dict[str, list[Call]] = {}
    for call in found.values():
        by_function.setdefault(call.function, []).append(call)
    return by_function


def _use(layer: rru.Layer, batch: int, dtype: torch.dtype) -> None:
    for lengths in (None, torch.randint(1, 4, (batch,))):
        for rounded in {False, dtype == torch.float32}:
            x = torch.randn(3, batch, 3, dtype=dtype, requires_grad=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=rounded):
                output, _ = layer(x, lengths=lengths)
            output.sum().backward()
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=rounded):
                layer(x, lengths=lengths)


def _reset(layer: rru.Layer, batch: int, dtype: torch.dtype) -> None:
    x = torch.randn(3, batch, 3, dtype=dtype, requires_grad=True)
    output, _ = layer(x, resets=torch.rand(3, batch) < 0.5)
    output.sum().backward()


def fuzzed_call(draw: random.Random) -> str:
    """Make a recorded call with some numbers and sizes changed. Return how it ended; only its tensors may change."""
    torch.set_num_threads(draw.randint(1, 4))
    by_function = calls()
    call = draw.choice(by_function[draw.choice(sorted(by_function))])
    numbers, contents = dict(call.numbers), list(call.tensors)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 4))):
        kind = draw.choice(("odd", "near", "size", "size", "more", "fewer", "order"))
        name, at = draw.choice(list(numbers)), draw.randrange(len(contents) or 1)
        if kind == "odd":
            numbers[name] = draw.choice((*ODD, draw.getrandbits(63)))
        elif kind == "near" and name not in ("seed", "dropout"):
            numbers[name] = max(min(numbers[name] + draw.choice((-1, 1, 2)), 2**62), -(2**62))
        elif kind == "size" and contents:
            contents[at] = _resized(draw, contents[at])
        elif kind == "more":
            contents.insert(at, bytes(draw.choice((0, 4, 8, 24))))
        elif kind == "fewer" and contents:
            del contents[at]
        elif kind == "order":
            numbers = {name: numbers[name] for name in draw.sample(list(numbers), len(numbers))}
    dtype = torch.float32 if "_f32_" in call.name else torch.float64
    function = library.Function(call.function, dtype, numbers)
    how = _ended(function, contents, draw.choice(GUARDS), overlap=draw.random() < 0.2)
    return f"library, {call.function}, {how}"


def _resized(draw: random.Random, content: bytes) -> bytes:
    size = max(len(content) + draw.choice((-8, -4, 4, 8, 64, -len(content), len(content))), 0)
    return (content + bytes(size))[:size]


def _ended(function: library.Function, contents: list[bytes], guard: int, *, overlap: bool) -> str:
    """Call a function. With `overlap`, tensors of the same size share their memory, except the first: the lengths."""
    buffers = [torch.full((guard + len(content) + guard,), FILL, dtype=torch.uint8) for content in contents]
    if overlap:
        shared = {len(content): buffer for content, buffer in zip(contents[1:], buffers[1:], strict=True)}
        buffers = [*buffers[:1], *(shared[len(content)] for content in contents[1:])]
    tensors = [buffer[guard : guard + len(content)] for buffer, content in zip(buffers, contents, strict=True)]
    for tensor, content in zip(tensors, contents, strict=True):
        if content:
            tensor.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    try:
        function(library.memory_of(tensors))
        how = "accepted"
    except (RuntimeError, MemoryError):
        how = "refused"
    for buffer in buffers:
        assert (buffer[:guard] == FILL).all(), f"{function._name} wrote before a tensor"
        assert (buffer[len(buffer) - guard :] == FILL).all(), f"{function._name} wrote after a tensor"
    return how
