"""Times that can be compared: contenders take turns, so that whatever else the machine does hits all alike."""

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

Seconds = list[float | None]
"""A task's time in each round; None in rounds it sat out."""


@dataclass
class Task:
    """Something to time: in every `every`-th round, `prepare` not counted."""

    run: Callable[[], object]
    every: int = 1
    prepare: Callable[[], object] | None = None


def interleave(tasks: Sequence[Task], rounds: int, seed: int = 0) -> list[Seconds]:
    """Times all tasks once in each round, in an order shuffled anew; one round more, before, warms up.

    **Returns:** for each task a list with its time in each round.
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
    """Garbage is collected only when asked for, and only what has come since: all of torch's objects take long."""
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
    """Over the rounds the task took part in."""
    return statistics.median(duration for duration in seconds if duration is not None)


def median_ratio(seconds: Seconds, base: Seconds) -> float:
    """The median of `seconds / base` over the rounds both took part in."""
    pairs = zip(seconds, base, strict=True)
    return statistics.median(ours / theirs for ours, theirs in pairs if ours is not None and theirs is not None)


class SquareProduct:
    """A float32 matrix product of the given size: what the machine can do at best."""

    def __init__(self, size: int) -> None:
        self.flops = 2 * size**3
        self.factor = torch.randn(size, size)
        self.product = torch.empty(size, size)

    def __call__(self) -> None:
        torch.mm(self.factor, self.factor, out=self.product)
