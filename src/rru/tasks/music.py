"""Polyphonic music: predict which of the 88 keys sound on the next step."""

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.data import KEYS, SPLITS, Facts, Music, without_empty_steps
from rru.tasks.batches import Batch, Batches, by_length, groups, shuffled, windows
from rru.tasks.joint import TIED, JointHead, head_of
from rru.tasks.metrics import NLL
from rru.tasks.models import Architecture, LayerState, SequenceModel, device_of
from rru.tasks.settings import MusicSettings, TaskSettings
from rru.tasks.task import Task
from rru.tasks.tied import TiedModel

EVALUATION_BATCH, TIED_EVALUATION_BATCH = 64, 8  # with the output `tied`, a sequence has 88 rows


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
        """Return the windows of the given indices, padded to the longest.

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
    """Predict each step of a piece from the steps before it. Empty steps are left out, except of own music.

    Metrics, in nats per step of 88 keys: `nll` is averaged over each window and then over windows, as in the paper;
    `nll_per_frame` is averaged over all steps, as in most of the literature.

    **Arguments:**

    - `music`: the pieces.
    - `settings`: `context` is the steps per window, training windows overlap by half, or less if they begin with a
      `bar`; `limit` and `evaluation_limit` count pieces; `transposition` is the maximum number of semitones to
      transpose a training window by, drawn anew each epoch.
    - `own`: whether it is a user's own music, in which steps on which no key sounds stay.
    """

    metric = NLL
    settings_class = MusicSettings
    defaults: ClassVar = {"": {"context": 200, "batch_size": 16}}

    def __init__(self, music: Music, settings: MusicSettings, *, own: bool = False) -> None:
        super().__init__(music, settings, own=own)
        self.architecture = self.architecture_of(settings, None, None)
        self._transposition, context = settings.transposition, settings.context
        self._evaluation: dict[str, _Windows] = {}
        for split in SPLITS:
            pieces: list[NDArray[np.uint8]] = getattr(music, split)
            pieces = pieces[: settings.limited(len(pieces), split)]
            pieces = pieces if own else [without_empty_steps(piece) for piece in pieces]
            self._evaluation[split] = _Windows(pieces, context, context)
            if split == "train":
                bar = settings.bar or 1
                self._training = _Windows(pieces, context, max(context // 2 // bar, 1) * bar)
            if not len(self._evaluation[split]):
                raise ValueError(f"{self.name}: {split} must have a piece with at least two non-empty steps, got none")

    @classmethod
    def architecture_of(cls, settings: TaskSettings, facts: Facts | None, tokens: int | None) -> Architecture:
        assert isinstance(settings, MusicSettings)
        if settings.output == TIED:
            return Architecture(TiedModel, KEYS, KEYS, bar=settings.bar)
        head = head_of(settings.output, settings.output_units, settings.key_order)
        return Architecture(SequenceModel, KEYS, KEYS, head=head)

    def steps_per_epoch(self) -> int:
        return len(groups(len(self._training), self.batch_size))

    def epoch(self, generator: torch.Generator) -> Batches:
        order = shuffled(len(self._training), self.batch_size, generator)
        if not self._transposition:
            return Batches(len(order), lambda number: self._training.batch(order[number]))
        most, count = self._transposition, len(self._training)
        semitones = torch.randint(-most, most + 1, (count,), generator=generator).numpy()
        return Batches(len(order), lambda number: self._training.batch(order[number], semitones[order[number]]))

    def _loss(self, model: nn.Module, batch: Batch, state: LayerState) -> tuple[Tensor, LayerState]:
        assert batch.lengths is not None
        return (window_nats(model, batch) / batch.lengths).mean(), None

    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        some = self._evaluation[split]
        per_window, total = 0.0, 0.0
        size = TIED_EVALUATION_BATCH if isinstance(model, TiedModel) else EVALUATION_BATCH
        for numbers in by_length(some.lengths, size):
            batch = some.batch(numbers).to(device_of(model))
            assert batch.lengths is not None
            nats = window_nats(model, batch).double()  # (B,)
            per_window += float((nats / batch.lengths).sum())
            total += float(nats.sum())
        nll = per_window / len(some)
        return {"nll": nll, "nll_per_frame": total / int(some.lengths.sum()), "loss": nll}


def transposed(roll: NDArray[np.uint8], semitones: int) -> NDArray[np.uint8]:
    """Return a piano roll (T, 88) transposed, as far as its notes stay on the keys."""
    used = np.flatnonzero(roll.any(axis=0))
    if not len(used):
        return roll
    return np.roll(roll, int(np.clip(semitones, -used[0], KEYS - 1 - used[-1])), axis=1)


def window_nats(model: nn.Module, batch: Batch) -> Tensor:
    """Return the nats (B,) of each window, summed over keys and steps."""
    assert batch.lengths is not None
    logits: Tensor = model(batch.inputs, lengths=batch.lengths)[0]  # (T, B, 88); with a joint head conditions (T, B, c)
    targets, steps = batch.targets.to(logits.dtype), torch.arange(len(logits), device=logits.device)
    there = steps[:, None] < batch.lengths  # (T, B)
    if isinstance(model.head, JointHead):
        known = model.head.nats(logits[there], targets[there])  # (N,)
        nats = known.new_zeros(there.shape).masked_scatter(there, known)
    else:
        nats = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(dim=-1)
    return nats.where(there, 0).sum(dim=0)
