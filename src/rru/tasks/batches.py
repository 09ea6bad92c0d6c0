"""Cut sequences into windows and group them into batches."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """The input of one training step. T is the length of the longest sequence, B the number of sequences.

    **Arguments:**

    - `inputs`: token ids (T, B), piano rolls (T, B, 88) or pixels (T, B, 1).
    - `targets`: (T, B), (T, B, 88), or (B,) for classification.
    - `lengths`: (B,), the length of each sequence, or None if all have T steps.
    - `fresh`: whether to start from the initial state instead of the state of the previous batch.
    - `tokens`: the total number of steps, without padding.
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None
    fresh: bool
    tokens: int

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on another device."""
        lengths = None if self.lengths is None else self.lengths.to(device)
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device), lengths=lengths)

    def part(self, start: int, end: int) -> "Batch":
        """Return the sequences from `start` up to, but not including, `end`."""
        inputs = self.inputs[:, start:end].contiguous()
        targets = (self.targets[start:end] if self.targets.dim() == 1 else self.targets[:, start:end]).contiguous()
        lengths = None if self.lengths is None else self.lengths[start:end]
        tokens = inputs.shape[0] * inputs.shape[1] if lengths is None else int(lengths.sum())
        return Batch(inputs, targets, lengths, self.fresh, tokens)


class Batches:
    """The batches of an epoch, built on access, in any order.

    **Arguments:** `count`: the number of batches; `make`: builds the batch of an index from 0 to `count` - 1.
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
    """Return start and length of windows over `steps` inputs, `stride` apart. The last one may be shorter."""
    if steps < 1:
        return []
    starts = range(0, max(steps - context + stride, 1), stride)
    return [(start, min(context, steps - start)) for start in starts]


def spaced(count: int, most: int) -> NDArray[np.int64]:
    """Return the indices of at most `most` of `count` items, evenly spaced: items may be sorted."""
    used = min(count, most)
    return np.arange(used) * count // max(used, 1)


def groups(count: int, size: int) -> list[slice]:
    """Divide `count` items into groups of `size`. An incomplete last group is merged into the previous one."""
    if count < 1:
        return []
    starts = [size * number for number in range(max(count // size, 1))]
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], count], strict=True)]


def shuffled(count: int, size: int, generator: torch.Generator) -> list[NDArray[np.int64]]:
    """Return the indices of `count` items in random order, in groups of `size`."""
    order: NDArray[np.int64] = torch.randperm(count, generator=generator).numpy()
    return [order[group] for group in groups(count, size)]


def by_length(lengths: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Return the indices of items in groups of at most `size`, sorted by length to reduce padding."""
    order = np.argsort(-lengths, kind="stable")  # longest first, so that running out of memory shows at once
    return [order[start : start + size] for start in range(0, len(order), size)]
