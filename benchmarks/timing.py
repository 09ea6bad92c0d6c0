"""Interleaved timing: contenders take turns, so that other load on the machine affects all alike."""

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

Seconds = list[float | None]
"""Time of a task in each round; None in rounds it skipped."""


@dataclass
class Task:
    """A function to time in every `every`-th round. The time of `prepare` is not counted."""

    run: Callable[[], object]
    every: int = 1
    prepare: Callable[[], object] | None = None


def interleave(tasks: Sequence[Task], rounds: int, seed: int = 0) -> list[Seconds]:
    """Times all tasks once per round, in shuffled order, after one warm-up round.

    **Returns:** for each task, its time in each round.
    """
    shuffle = random.Random(seed).shuffle
    seconds: list[Seconds] = [[None] * rounds for _ in tasks]
    with _no_garbage_collection():
        for index in range(-1, rounds):
            order = [number for number, task in enumerate(tasks) if index < 0 or index % task.every == 0]
            shuffle(order)
            for number in order:
                duration = _time(tasks[number])
                if index >= 0:
                    seconds[number][index] = duration
    return seconds


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disables automatic garbage collection and excludes existing objects, so that `gc.collect` is fast."""
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _time(task: Task) -> float:
    if task.prepare is not None:
        task.prepare()
    gc.collect()
    start = time.perf_counter()
    task.run()
    return time.perf_counter() - start


def median(seconds: Seconds) -> float:
    """Return the median over the rounds that were not skipped."""
    return statistics.median(duration for duration in seconds if duration is not None)


def median_ratio(seconds: Seconds, base: Seconds) -> float:
    """Return the median of `seconds / base` over the rounds that neither skipped."""
    pairs = zip(seconds, base, strict=True)
    return statistics.median(ours / theirs for ours, theirs in pairs if ours is not None and theirs is not None)


class SquareProduct:
    """A square float32 matrix product, which measures the peak rate of the machine."""

    def __init__(self, size: int) -> None:
        self.flops = 2 * size**3
        self.factor = torch.randn(size, size)
        self.product = torch.empty(size, size)

    def __call__(self) -> None:
        torch.mm(self.factor, self.factor, out=self.product)
