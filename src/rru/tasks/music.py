"""Polyphonic music: which of 88 keys sound next."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.data import Music, without_empty_steps
from rru.tasks.batches import Batch, Batches, by_length, groups, shuffled, windows
from rru.tasks.models import KEYS, device_of, music_model
from rru.tasks.task import SPLITS, Task, limited

EVALUATION_BATCH = 64


class _Windows:
    """The windows of pieces: inputs, and as targets the steps that follow them."""

    def __init__(self, pieces: list[NDArray[np.uint8]], context: int, stride: int) -> None:
        self._pieces = pieces
        self._places = [
            (number, start, length)
            for number, piece in enumerate(pieces)
            for start, length in windows(len(piece) - 1, context, stride)
        ]
        self.lengths = np.array([length for _, _, length in self._places], np.int64)

    def __len__(self) -> int:
        return len(self._places)

    def batch(self, numbers: NDArray[np.int64]) -> Batch:
        """The windows of these numbers, trimmed to the longest."""
        lengths = self.lengths[numbers]
        steps = np.zeros((int(lengths.max()) + 1, len(numbers), KEYS), np.float32)
        for column, window in enumerate(numbers):
            piece, start, length = self._places[window]
            steps[: length + 1, column] = self._pieces[piece][start : start + length + 1]
        rolls = torch.from_numpy(steps)  # (T + 1, B, 88)
        return Batch(rolls[:-1], rolls[1:], torch.from_numpy(lengths), fresh=True, tokens=int(lengths.sum()))


class MusicTask(Task):
    """Predicts each step of a piece from those before it, every key on its own; empty steps are left out.

    Scores, in nats for a step of 88 keys: `nll`, averaged over each window and then over windows, as in the paper; and
    `nll_per_frame`, averaged over all steps, as most others do.

    **Arguments:**

    - `name`: what it is called.
    - `music`: the pieces.
    - `context`: inputs of a window. In training windows overlap by half.
    - `batch_size`: windows in a batch.
    - `limit`, `evaluation_limit`: the most pieces to train on, and to validate and test on; default: all.
    """

    metric = "nll"

    def __init__(
        self,
        name: str,
        music: Music,
        *,
        context: int = 200,
        batch_size: int = 16,
        limit: int | None = None,
        evaluation_limit: int | None = None,
    ) -> None:
        super().__init__(name, context, batch_size)
        self._evaluation: dict[str, _Windows] = {}
        for split in SPLITS:
            pieces: list[NDArray[np.uint8]] = getattr(music, split)
            used = limited(len(pieces), split, limit, evaluation_limit)
            pieces = [without_empty_steps(piece) for piece in pieces[:used]]
            self._evaluation[split] = _Windows(pieces, context, context)
            if split == "train":
                self._training = _Windows(pieces, context, max(context // 2, 1))
            if not len(self._evaluation[split]):
                raise ValueError(f"{name}: {split} must have a piece of at least two steps with a note, got none")

    def model(self, cell: str, cell_options: Mapping[str, Any], budget: int) -> nn.Module:
        return music_model(cell, cell_options, budget)

    def steps_per_epoch(self) -> int:
        return len(groups(len(self._training), self.batch_size))

    def epoch(self, generator: torch.Generator) -> Batches:
        order = shuffled(len(self._training), self.batch_size, generator)
        return Batches(len(order), lambda number: self._training.batch(order[number]))

    def loss(self, model: nn.Module, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        batch = batch.to(device_of(model))
        assert batch.lengths is not None
        return (window_nats(model, batch) / batch.lengths).mean(), None

    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        some = self._evaluation[split]
        per_window, total = 0.0, 0.0
        for numbers in by_length(some.lengths, EVALUATION_BATCH):
            batch = some.batch(numbers).to(device_of(model))
            assert batch.lengths is not None
            nats = window_nats(model, batch).double()  # (B,)
            per_window += float((nats / batch.lengths).sum())
            total += float(nats.sum())
        nll = per_window / len(some)
        return {"nll": nll, "nll_per_frame": total / int(some.lengths.sum()), "loss": nll}


def window_nats(model: nn.Module, batch: Batch) -> Tensor:
    """The nats (B,) of each window, summed over its keys and its own steps."""
    assert batch.lengths is not None
    logits, _ = model(batch.inputs, lengths=batch.lengths)  # (T, B, 88)
    targets = batch.targets.to(logits.dtype)
    nats = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(dim=-1)  # (T, B)
    steps = torch.arange(len(nats), device=nats.device)
    return nats.where(steps[:, None] < batch.lengths, 0).sum(dim=0)
