"""Measure where the time of a training step of the RRU goes."""

import ctypes
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.contenders import RRU_NATIVE, TrainingStep, build
from benchmarks.shapes import Shape
from rru.scan.native import library
from rru.scan.native.rru import NativeRRU
from rru.scan.native.rru_narrow import NativeNarrowRRU
from rru.scan.native.rru_wide import NativeWideRRU

OUTSIDE_LOOP = ("prepare", "rows", "after")  # as in native/phases.h; then come the products of a step, in order
NAMES = (  # in the order of a table; "first", "middle" and "last" are the products of a step (y is in the middle)
    "forward prepare",
    "forward first",
    "forward middle",
    "forward last",
    "forward rows",
    "backward prepare",
    "backward first",
    "backward middle",
    "backward last",
    "backward rows",
    "backward after",
    "weights",
    "allocation",
    "python",
)


class PhaseTimer:
    """Times the phases of all native calls while `measured()` is active, in seconds."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure everything that runs inside, and add it to `seconds`."""
        plain, wide, narrow = NativeRRU, NativeWideRRU, NativeNarrowRRU
        start = time.perf_counter()
        with (
            patch.object(library.Function, "__call__", self._timing_native(library.Function.__call__)),
            patch.object(plain, "gradients", self._timing("weights", plain.gradients)),
            patch.object(wide, "gradients", self._timing("weights", wide.gradients)),
            patch.object(narrow, "gradients", self._timing("weights", narrow.gradients)),
            patch.object(wide, "derived", self._timing("forward prepare", wide.derived)),
            patch.object(torch.Tensor, "new_empty", self._timing("allocation", torch.Tensor.new_empty)),
        ):
            yield
        self.seconds["python"] += time.perf_counter() - start - sum(self.seconds.values())

    def _timing(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds[name] += time.perf_counter() - start

        return timed

    def _timing_native(self, call: Callable[..., Any]) -> Callable[..., Any]:
        whole = self._timing("weights", call)  # small layers: the library computes weight gradients, without a loop

        def timed(function: library.Function, memory: Any) -> None:
            if "_gradient_" in function._name:
                return call(function, memory)  # inside `gradients` or `derived`, which are timed as a whole
            if "_gradients_" in function._name:
                return whole(function, memory)
            with native_phases() as phases:
                call(function, memory)
            direction = "forward" if "forward" in function._name else "backward"
            products = [index for index in range(len(OUTSIDE_LOOP), len(phases)) if phases[index]]
            for index, seconds in enumerate(phases):
                if index < len(OUTSIDE_LOOP):
                    name = OUTSIDE_LOOP[index]
                else:
                    name = "first" if index == products[0] else "last" if index == products[-1] else "middle"
                once = index < len(OUTSIDE_LOOP) and name != "rows"
                self.seconds[f"{direction} {name}"] += seconds / (1 if once else torch.get_num_threads())

        return timed


@contextmanager
def native_phases() -> Iterator[list[float]]:
    """Yield a list that holds the seconds of each phase of native/phases.h, summed over threads, afterwards."""
    assert library._library is not None
    phases: list[float] = []
    library._library.rru_time_phases()
    try:
        yield phases
    finally:
        size = library._library.rru_phases(None, 0)
        seconds = (ctypes.c_double * size)()
        library._library.rru_phases(seconds, size)
        phases += seconds


def measure_phases(shape: Shape, dropout: float, repeats: int) -> dict[str, Any]:
    """Return the median seconds of every phase of a training step."""
    step = TrainingStep(build(RRU_NATIVE, shape, dropout), shape)
    step()
    rounds = []
    for _ in range(repeats):
        timer = PhaseTimer()
        with timer.measured():
            step()
        rounds.append(timer.seconds)
    return {
        "shape": asdict(shape),
        "dropout": dropout,
        "median_seconds": {name: median(seconds[name] for seconds in rounds) for name in NAMES},
    }
