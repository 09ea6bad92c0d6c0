"""Polyphonic music: predict which of the 88 keys sound on the next step."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.data import KEYS, SPLITS, Music, without_empty_steps
from rru.tasks.batches import Batch, Batches, by_length, groups, shuffled, windows
from rru.tasks.joint import INDEPENDENT, LOW_HIGH, UNITS, JointHead, head_of
from rru.tasks.metrics import NLL
from rru.tasks.models import device_of, music_model
from rru.tasks.task import Task, limited

EVALUATION_BATCH = 64


class _Windows:
    """Windows over pieces. The targets are the inputs shifted by one step."""

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

    def batch(self, numbers: NDArray[np.int64], semitones: NDArray[np.int64] | None = None) -> Batch:
        """Returns the windows of the given indices, padded to the longest.

        **Arguments:** `semitones`: by how much to transpose each window; less if a note would leave the keys.
        """
        lengths = self.lengths[numbers]
        steps = np.zeros((int(lengths.max()) + 1, len(numbers), KEYS), np.float32)
        for column, window in enumerate(numbers):
            piece, start, length = self._places[window]
            window_steps = self._pieces[piece][start : start + length + 1]
            if semitones is not None:
                window_steps = transposed(window_steps, int(semitones[column]))
            steps[: length + 1, column] = window_steps
        rolls = torch.from_numpy(steps)  # (T + 1, B, 88)
        return Batch(rolls[:-1], rolls[1:], torch.from_numpy(lengths), fresh=True, tokens=int(lengths.sum()))


class MusicTask(Task):
    """Predict each step of a piece from the steps before it. Empty steps are left out, unless `rests` keeps them.

    Metrics, in nats per step of 88 keys: `nll` is averaged over each window and then over windows, as in the paper;
    `nll_per_frame` is averaged over all steps, as in most of the literature.

    **Arguments:**

    - `name`: the name of the task.
    - `music`: the pieces.
    - `context`: steps per window. Training windows overlap by half.
    - `batch_size`: windows per batch.
    - `limit`, `evaluation_limit`: the maximum number of pieces for training, and for validation and test each.
      Default: all.
    - `output`: how the keys of a step depend on each other; `independent` is the paper's. See `head_of`.
    - `output_units`, `key_order`: hidden units and order of keys of a joint output, see `head_of`.
    - `transposition`: the maximum number of semitones to transpose a training window by, drawn anew each epoch.
    - `rests`: whether steps on which no key sounds stay.
    """

    metric = NLL

    def __init__(
        self,
        name: str,
        music: Music,
        *,
        context: int = 200,
        batch_size: int = 16,
        limit: int | None = None,
        evaluation_limit: int | None = None,
        output: str = INDEPENDENT,
        output_units: int = UNITS,
        key_order: str = LOW_HIGH,
        transposition: int = 0,
        rests: bool = False,
    ) -> None:
        super().__init__(name, context, batch_size)
        self._transposition = transposition
        self._head = head_of(output, output_units, key_order)
        self._evaluation: dict[str, _Windows] = {}
        for split in SPLITS:
            pieces: list[NDArray[np.uint8]] = getattr(music, split)
            used = limited(len(pieces), split, limit, evaluation_limit)
            pieces = pieces[:used] if rests else [without_empty_steps(piece) for piece in pieces[:used]]
            self._evaluation[split] = _Windows(pieces, context, context)
            if split == "train":
                self._training = _Windows(pieces, context, max(context // 2, 1))
            if not len(self._evaluation[split]):
                raise ValueError(f"{name}: {split} must have a piece with at least two non-empty steps, got none")

    def model(self, cell: str, cell_options: Mapping[str, Any], budget: int) -> nn.Module:
        return music_model(cell, cell_options, budget, self._head)

    def steps_per_epoch(self) -> int:
        return len(groups(len(self._training), self.batch_size))

    def epoch(self, generator: torch.Generator) -> Batches:
        order = shuffled(len(self._training), self.batch_size, generator)
        if not self._transposition:
            return Batches(len(order), lambda number: self._training.batch(order[number]))
        most, count = self._transposition, len(self._training)
        semitones = torch.randint(-most, most + 1, (count,), generator=generator).numpy()
        return Batches(len(order), lambda number: self._training.batch(order[number], semitones[order[number]]))

    def _loss(self, model: nn.Module, batch: Batch, state: Any) -> tuple[Tensor, Any]:
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


def transposed(roll: NDArray[np.uint8], semitones: int) -> NDArray[np.uint8]:
    """Returns a piano roll (T, 88) transposed, as far as its notes stay on the keys."""
    used = np.flatnonzero(roll.any(axis=0))
    if not len(used):
        return roll
    return np.roll(roll, int(np.clip(semitones, -used[0], KEYS - 1 - used[-1])), axis=1)


def window_nats(model: nn.Module, batch: Batch) -> Tensor:
    """Returns the nats (B,) of each window, summed over keys and steps."""
    assert batch.lengths is not None
    logits: Tensor = model(batch.inputs, lengths=batch.lengths)[0]  # (T, B, 88); with a joint head conditions (T, B, c)
    targets, steps = batch.targets.to(logits.dtype), torch.arange(len(logits), device=logits.device)
    there = steps[:, None] < batch.lengths  # (T, B)
    if isinstance(model.head, JointHead):
        known = model.head.nats(logits[there], targets[there])  # (N,); float32 under autocast, where logits are not
        nats = known.new_zeros(there.shape).masked_scatter(there, known)
    else:
        nats = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(dim=-1)
    return nats.where(there, 0).sum(dim=0)
