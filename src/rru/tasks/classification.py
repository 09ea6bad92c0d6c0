"""Sequence classification: texts, images of digits, and sequences of numbers."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.data import (
    SPLITS,
    Facts,
    Images,
    LabelledImages,
    LabelledSequences,
    LabelledTexts,
    Reviews,
    Sequences,
    permutation,
)
from rru.data.own.data_json import LabelFacts, SequenceFacts
from rru.tasks.batches import Batch, Batches, by_length, groups, shuffled, spaced
from rru.tasks.metrics import ACCURACY
from rru.tasks.models import Architecture, Classifier, LayerState, device_of, known_tokens
from rru.tasks.settings import TaskSettings
from rru.tasks.task import Task

LABEL_SMOOTHING = 0.1
PIXELS = 784
DIGITS = tuple(map(str, range(10)))
REVIEW_CLASSES = Reviews.classes
MAX_SHOWN = 40  # classes in a confusion matrix

Lengths = NDArray[np.int64]


class ClassificationTask(Task):
    """Base class of the classification tasks. The metric is `accuracy`, in percent; `macro_f1` is reported too.

    Macro F1 is the mean over classes of the harmonic mean of precision and recall, in percent. Classes that are neither
    in the split nor predicted do not count.

    **Arguments:**

    - `settings`, `own`: see `Task`.
    - `lengths`: the length of every sequence, by split.
    - `classes`: the names of the classes.
    """

    metric = ACCURACY

    def __init__(
        self, settings: TaskSettings, lengths: Mapping[str, Lengths], classes: Sequence[str], *, own: bool
    ) -> None:
        super().__init__(None, settings, own=own)
        self.classes = tuple(classes)
        self._lengths = lengths
        for split in SPLITS:
            if not len(lengths[split]):
                raise ValueError(f"{self.name}: {split} must have at least one sequence, got none")

    def steps_per_epoch(self) -> int:
        return len(groups(len(self._lengths["train"]), self.batch_size))

    def epoch(self, generator: torch.Generator) -> Batches:
        order = shuffled(len(self._lengths["train"]), self.batch_size, generator)
        return Batches(len(order), lambda number: self._batch("train", order[number]))

    def _loss(self, model: nn.Module, batch: Batch, state: LayerState) -> tuple[Tensor, LayerState]:
        logits, _ = model(batch.inputs, lengths=batch.lengths)  # (B, classes)
        return F.cross_entropy(logits, batch.targets, label_smoothing=LABEL_SMOOTHING), None

    @abstractmethod
    def _batch(self, split: str, numbers: NDArray[np.int64]) -> Batch:
        """Return the sequences of the given indices, padded to the longest."""

    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        confusion, loss = self._confusion(model, split)
        right, f1 = float(confusion.trace()), macro_f1(confusion)
        return {"accuracy": 100 * right / float(confusion.sum()), "macro_f1": 100 * f1, "loss": loss}

    def _details(self, model: nn.Module) -> dict[str, object]:
        if len(self.classes) > MAX_SHOWN:
            return {}
        return {"classes": list(self.classes), "confusion": self._confusion(model, "test")[0].tolist()}

    def _confusion(self, model: nn.Module, split: str) -> tuple[NDArray[np.int64], float]:
        """Return how often each class (rows) was taken for each (columns), and the mean loss."""
        count, loss = len(self.classes), 0.0
        confusion = np.zeros((count, count), np.int64)
        lengths = self._lengths[split]
        for numbers in by_length(lengths, self.batch_size):
            batch = self._batch(split, numbers).to(device_of(model))
            logits, _ = model(batch.inputs, lengths=batch.lengths)
            each = F.cross_entropy(logits, batch.targets, label_smoothing=LABEL_SMOOTHING, reduction="none")
            loss += float(each.double().sum())
            pairs = (batch.targets * count + logits.argmax(dim=-1)).cpu().numpy()
            confusion += np.bincount(pairs, minlength=count * count).reshape(count, count)
        return confusion, loss / len(lengths)


def macro_f1(confusion: NDArray[np.int64]) -> float:
    """Return the macro F1 of a confusion matrix (true classes, predicted classes), from 0 to 1."""
    right, total = np.diag(confusion), confusion.sum(axis=0) + confusion.sum(axis=1)
    there = total > 0
    return float((2 * right[there] / total[there]).mean())


class ReviewTask(ClassificationTask):
    """Classify texts, such as reviews, by their last `context` words. An empty text is one unknown word.

    **Arguments:**

    - `reviews`: the reviews and their vocabulary.
    - `settings`: `context` is the maximum number of words of a review; `limit` and `evaluation_limit` count reviews.
    """

    defaults: ClassVar = {"": {"context": 512, "batch_size": 64}}

    def __init__(self, reviews: Reviews, settings: TaskSettings, *, own: bool = False) -> None:
        self.vocabulary = reviews.vocabulary
        self._reviews: dict[str, LabelledTexts] = {split: getattr(reviews, split) for split in SPLITS}
        self._chosen = {
            split: spaced(len(some), settings.limited(len(some), split)) for split, some in self._reviews.items()
        }
        lengths = {
            split: np.clip(np.diff(some.offsets)[self._chosen[split]], 1, settings.context)
            for split, some in self._reviews.items()
        }
        super().__init__(settings, lengths, reviews.classes, own=own)
        usual = self.architecture_of(settings, None, len(self.vocabulary))
        self.architecture = replace(usual, outputs=len(self.classes))

    @classmethod
    def architecture_of(cls, settings: TaskSettings, facts: Facts | None, tokens: int | None) -> Architecture:
        classes = facts.classes if isinstance(facts, LabelFacts) else REVIEW_CLASSES
        return Architecture(Classifier, len(classes), tokens=known_tokens(tokens), embedding_size=64)

    def _batch(self, split: str, numbers: NDArray[np.int64]) -> Batch:
        lengths = self._lengths[split][numbers]
        words = np.full((int(lengths.max()), len(numbers)), self.vocabulary.padding, np.int64)
        labels = np.empty(len(numbers), np.int64)
        for column, review in enumerate(self._chosen[split][numbers]):
            tokens, labels[column] = self._reviews[split][int(review)]
            words[: lengths[column], column] = tokens[-self.context :] if len(tokens) else self.vocabulary.unknown
        inputs, targets = torch.from_numpy(words), torch.from_numpy(labels)
        return Batch(inputs, targets, torch.from_numpy(lengths), fresh=True, tokens=int(lengths.sum()))


class ImageTask(ClassificationTask):
    """Classify images of digits, read pixel by pixel with values from 0 to 1; the order of pixels is `pixel_order`.

    **Arguments:** `images`: the images; `settings`: `limit` and `evaluation_limit` count images.
    """

    defaults: ClassVar = {"": {"context": PIXELS, "batch_size": 64}}

    def __init__(self, images: Images, settings: TaskSettings, *, own: bool = False) -> None:
        if settings.context != PIXELS:
            raise ValueError(f"context must be {PIXELS}, the pixels of an image; got {settings.context}")
        self._order = pixel_order(settings.name)
        self._images: dict[str, LabelledImages] = {split: getattr(images, split) for split in SPLITS}
        lengths = {split: np.full(settings.limited(len(some), split), PIXELS) for split, some in self._images.items()}
        super().__init__(settings, lengths, DIGITS, own=own)
        self.architecture = self.architecture_of(settings, None, None)

    @classmethod
    def architecture_of(cls, settings: TaskSettings, facts: Facts | None, tokens: int | None) -> Architecture:
        return Architecture(Classifier, len(DIGITS), input_size=1)

    def _batch(self, split: str, numbers: NDArray[np.int64]) -> Batch:
        some = self._images[split]
        pixels = some.images[numbers].reshape(len(numbers), PIXELS)[:, self._order]  # (B, 784)
        inputs = torch.from_numpy(np.ascontiguousarray(pixels.T)).float().div_(255)[..., None]  # (784, B, 1)
        targets = torch.from_numpy(some.labels[numbers].astype(np.int64))
        return Batch(inputs, targets, None, fresh=True, tokens=inputs.numel())


def pixel_order(task: str) -> NDArray[np.int64]:
    """Return the order in which a task reads the pixels of an image: row by row, or permuted for `pmnist`."""
    return permutation() if task == "pmnist" else np.arange(PIXELS)


class SequenceTask(ClassificationTask):
    """Classify sequences of numbers by their last `context` steps.

    **Arguments:**

    - `sequences`: the sequences, scaled.
    - `settings`: `context` is the maximum number of steps of a sequence; `limit` and `evaluation_limit` count
      sequences.
    """

    def __init__(self, sequences: Sequences, settings: TaskSettings, *, own: bool = False) -> None:
        self._sequences: dict[str, LabelledSequences] = {split: getattr(sequences, split) for split in SPLITS}
        self._chosen = {
            split: spaced(len(some), settings.limited(len(some), split)) for split, some in self._sequences.items()
        }
        lengths = {
            split: np.minimum(np.diff(some.offsets)[self._chosen[split]], settings.context)
            for split, some in self._sequences.items()
        }
        super().__init__(settings, lengths, sequences.classes, own=own)
        columns = self._sequences["train"].values.shape[1]
        self.architecture = Architecture(Classifier, len(self.classes), input_size=columns)

    @classmethod
    def architecture_of(cls, settings: TaskSettings, facts: Facts | None, tokens: int | None) -> Architecture:
        if not isinstance(facts, SequenceFacts):
            raise ValueError("a model of sequences needs the facts of its data: columns and classes")
        return Architecture(Classifier, len(facts.classes), input_size=len(facts.columns))

    def _batch(self, split: str, numbers: NDArray[np.int64]) -> Batch:
        some, lengths = self._sequences[split], self._lengths[split][numbers]
        values = np.zeros((int(lengths.max()), len(numbers), some.values.shape[1]), np.float32)  # (T, B, columns)
        chosen = self._chosen[split][numbers]
        for column, (sequence, length) in enumerate(zip(chosen, lengths, strict=True)):
            end = int(some.offsets[sequence + 1])
            values[:length, column] = some.values[end - length : end]
        targets = torch.from_numpy(some.labels[chosen])
        return Batch(
            torch.from_numpy(values), targets, torch.from_numpy(lengths), fresh=True, tokens=int(lengths.sum())
        )
