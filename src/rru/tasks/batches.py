"""Windows of long sequences, and batches of them that can be had in any order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """What one step of training reads. T = steps of the longest sequence, B = sequences.

    **Arguments:**

    - `inputs`: token numbers (T, B), piano rolls (T, B, 88) or pixels (T, B, 1).
    - `targets`: (T, B), (T, B, 88), or for a classification (B,).
    - `lengths`: (B,), how many steps of each sequence count; None where all do.
    - `fresh`: whether the state starts anew rather than from the batch before.
    - `tokens`: how many steps count in all.
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None
    fresh: bool
    tokens: int

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        lengths = None if self.lengths is None else self.lengths.to(device)
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device), lengths=lengths)

    def part(self, start: int, end: int) -> "Batch":
        """The sequences from number `start` up to, without, number `end`."""
        inputs = self.inputs[:, start:end].contiguous()
        targets = (self.targets[start:end] if self.targets.dim() == 1 else self.targets[:, start:end]).contiguous()
        lengths = None if self.lengths is None else self.lengths[start:end]
        tokens = inputs.shape[0] * inputs.shape[1] if lengths is None else int(lengths.sum())
        return Batch(inputs, targets, lengths, self.fresh, tokens)


class Batches:
    """The batches of an epoch, each made when it is asked for, whichever were asked for before.

    **Arguments:** `count`: how many there are; `make`: makes the one of a number from 0 to `count` - 1.
    """

    def __init__(self, count: int, make: Callable[[int], Batch]) -> None:
        self._numbers = range(count)
        self._make = make

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Batch:
        return self._make(self._numbers[index])

    def __iter__(self) -> Iterator[Batch]:
        return map(self._make, self._numbers)


def windows(steps: int, context: int, stride: int) -> list[tuple[int, int]]:
    """Start and length of the windows of `steps` inputs, `stride` apart; the rest is one shorter window."""
    if steps < 1:
        return []
    starts = range(0, max(steps - context + stride, 1), stride)
    return [(start, min(context, steps - start)) for start in starts]


def groups(count: int, size: int) -> list[slice]:
    """`count` things in groups of `size`, the incomplete last one merged into the one before it."""
    if count < 1:
        return []
    starts = [size * number for number in range(max(count // size, 1))]
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], count], strict=True)]


def shuffled(count: int, size: int, generator: torch.Generator) -> list[NDArray[np.int64]]:
    """The numbers of `count` things in a random order, group by group."""
    order: NDArray[np.int64] = torch.randperm(count, generator=generator).numpy()
    return [order[group] for group in groups(count, size)]


def by_length(lengths: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """The numbers of things, those of like length together in groups of at most `size`, so that little is padded."""
    order = np.argsort(-lengths, kind="stable")  # longest first: what needs most memory comes at once
    return [order[start : start + size] for start in range(0, len(order), size)]
