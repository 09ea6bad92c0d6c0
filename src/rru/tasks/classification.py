"""Sequence classification: texts, images of digits, and sequences of numbers."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.data import SPLITS, Images, LabelledImages, LabelledSequences, LabelledTexts, Reviews, Sequences, permutation
from rru.nn import checks
from rru.tasks.batches import Batch, Batches, by_length, groups, shuffled
from rru.tasks.metrics import ACCURACY
from rru.tasks.models import device_of, image_model, review_model, sequence_model
from rru.tasks.task import Task, limited

LABEL_SMOOTHING = 0.1
PIXELS = 784
MOST_SHOWN = 40  # classes in a confusion matrix


class ClassificationTask(Task):
    """Base class of the classification tasks. The metric is `accuracy`, in percent; `macro_f1` is reported too.

    Macro F1 is the mean over classes of the harmonic mean of precision and recall, in percent. Classes that are neither
    in the split nor predicted do not count.

    **Arguments:**

    - `name`, `context`, `batch_size`: see `Task`.
    - `lengths`: the length of every sequence, by split.
    - `classes`: the names of the classes.
    """

    metric = ACCURACY

    def __init__(
        self,
        name: str,
        context: int,
        batch_size: int,
        lengths: Mapping[str, NDArray[np.int64]],
        classes: Sequence[str],
    ) -> None:
        super().__init__(name, context, batch_size)
        self.classes = tuple(classes)
        self._lengths = lengths
        for split in SPLITS:
            if not len(lengths[split]):
                raise ValueError(f"{name}: {split} must have at least one sequence, got none")

    def steps_per_epoch(self) -> int:
        return len(groups(len(self._lengths["train"]), self.batch_size))

    def epoch(self, generator: torch.Generator) -> Batches:
        order = shuffled(len(self._lengths["train"]), self.batch_size, generator)
        return Batches(len(order), lambda number: self._batch("train", order[number]))

    def _loss(self, model: nn.Module, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        logits, _ = model(batch.inputs, lengths=batch.lengths)  # (B, classes)
        return F.cross_entropy(logits, batch.targets, label_smoothing=LABEL_SMOOTHING), None

    @abstractmethod
    def _batch(self, split: str, numbers: NDArray[np.int64]) -> Batch:
        """Returns the sequences of the given indices, padded to the longest."""

    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        confusion, loss = self._confusion(model, split)
        right, f1 = float(confusion.trace()), macro_f1(confusion)
        return {"accuracy": 100 * right / float(confusion.sum()), "macro_f1": 100 * f1, "loss": loss}

    def _details(self, model: nn.Module) -> dict[str, Any]:
        if len(self.classes) > MOST_SHOWN:
            return {}
        return {"classes": list(self.classes), "confusion": self._confusion(model, "test")[0].tolist()}

    def _confusion(self, model: nn.Module, split: str) -> tuple[NDArray[np.int64], float]:
        """Returns how often each class (rows) was taken for each (columns), and the mean loss."""
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
    """Returns the macro F1 of a confusion matrix (true classes, predicted classes), from 0 to 1."""
    right, total = np.diag(confusion), confusion.sum(axis=0) + confusion.sum(axis=1)
    there = total > 0
    return float((2 * right[there] / total[there]).mean())


class ReviewTask(ClassificationTask):
    """Classify texts, such as reviews, by their last `context` words. An empty text is one unknown word.

    **Arguments:**

    - `name`: the name of the task.
    - `reviews`: the reviews and their vocabulary.
    - `context`: the maximum number of words of a review.
    - `batch_size`: reviews per batch.
    - `embedding_size`: default size of word embeddings; the options of the model override it.
    - `limit`, `evaluation_limit`: the maximum number of reviews for training, and for validation and test each. They
      are evenly spaced, since reviews may be sorted by label. Default: all.
    """

    def __init__(
        self,
        name: str,
        reviews: Reviews,
        *,
        context: int = 512,
        batch_size: int = 64,
        embedding_size: int = 64,
        limit: int | None = None,
        evaluation_limit: int | None = None,
    ) -> None:
        self.vocabulary = reviews.vocabulary
        self._embedding_size = embedding_size
        self._reviews: dict[str, LabelledTexts] = {split: getattr(reviews, split) for split in SPLITS}
        self._chosen: dict[str, NDArray[np.int64]] = {}
        lengths: dict[str, NDArray[np.int64]] = {}
        for split, some in self._reviews.items():
            used = limited(len(some), split, limit, evaluation_limit)
            self._chosen[split] = np.arange(used) * len(some) // max(used, 1)
            lengths[split] = np.clip(np.diff(some.offsets)[self._chosen[split]], 1, context)
        super().__init__(name, context, batch_size, lengths, reviews.classes)

    def model(self, cell: str, cell_options: Mapping[str, Any], budget: int) -> nn.Module:
        options = {"embedding_size": self._embedding_size, **cell_options}
        return review_model(cell, options, budget, len(self.vocabulary), len(self.classes))

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
    """Classify images of digits, read pixel by pixel with values from 0 to 1.

    **Arguments:**

    - `name`: the name of the task.
    - `images`: the images.
    - `permuted`: whether to read pixels in the order of `rru.data.permutation()` instead of row by row.
    - `batch_size`: images per batch.
    - `limit`, `evaluation_limit`: the maximum number of images for training, and for validation and test each.
      Default: all.
    """

    def __init__(
        self,
        name: str,
        images: Images,
        *,
        permuted: bool,
        context: int = PIXELS,
        batch_size: int = 64,
        limit: int | None = None,
        evaluation_limit: int | None = None,
    ) -> None:
        if context != PIXELS:
            raise ValueError(f"context must be {PIXELS}, the pixels of an image; got {context}")
        self.permuted = checks.flag("permuted", permuted)
        self._order = permutation() if permuted else np.arange(PIXELS)
        self._images: dict[str, LabelledImages] = {split: getattr(images, split) for split in SPLITS}
        lengths: dict[str, NDArray[np.int64]] = {}
        for split, some in self._images.items():
            lengths[split] = np.full(limited(len(some), split, limit, evaluation_limit), PIXELS)
        super().__init__(name, context, batch_size, lengths, [str(digit) for digit in range(10)])

    def model(self, cell: str, cell_options: Mapping[str, Any], budget: int) -> nn.Module:
        return image_model(cell, cell_options, budget)

    def _batch(self, split: str, numbers: NDArray[np.int64]) -> Batch:
        some = self._images[split]
        pixels = some.images[numbers].reshape(len(numbers), PIXELS)[:, self._order]  # (B, 784)
        inputs = torch.from_numpy(np.ascontiguousarray(pixels.T)).float().div_(255)[..., None]  # (784, B, 1)
        targets = torch.from_numpy(some.labels[numbers].astype(np.int64))
        return Batch(inputs, targets, None, fresh=True, tokens=inputs.numel())


class SequenceTask(ClassificationTask):
    """Classify sequences of numbers by their last `context` steps.

    **Arguments:**

    - `name`: the name of the task.
    - `sequences`: the sequences, scaled.
    - `context`: the maximum number of steps of a sequence.
    - `batch_size`: sequences per batch.
    - `limit`, `evaluation_limit`: the maximum number of sequences for training, and for validation and test each. They
      are evenly spaced. Default: all.
    """

    def __init__(
        self,
        name: str,
        sequences: Sequences,
        *,
        context: int,
        batch_size: int,
        limit: int | None = None,
        evaluation_limit: int | None = None,
    ) -> None:
        self._sequences: dict[str, LabelledSequences] = {split: getattr(sequences, split) for split in SPLITS}
        self._chosen: dict[str, NDArray[np.int64]] = {}
        lengths: dict[str, NDArray[np.int64]] = {}
        for split, some in self._sequences.items():
            used = limited(len(some), split, limit, evaluation_limit)
            self._chosen[split] = np.arange(used) * len(some) // max(used, 1)
            lengths[split] = np.minimum(np.diff(some.offsets)[self._chosen[split]], context)
        super().__init__(name, context, batch_size, lengths, sequences.classes)

    def model(self, cell: str, cell_options: Mapping[str, Any], budget: int) -> nn.Module:
        columns = self._sequences["train"].values.shape[1]
        return sequence_model(cell, cell_options, budget, columns, len(self.classes))

    def _batch(self, split: str, numbers: NDArray[np.int64]) -> Batch:
        some, lengths = self._sequences[split], self._lengths[split][numbers]
        values = np.zeros((int(lengths.max()), len(numbers), some.values.shape[1]), np.float32)  # (T, B, columns)
        chosen = self._chosen[split][numbers]
        for column, (sequence, length) in enumerate(zip(chosen, lengths, strict=True)):
            end = int(some.offsets[sequence + 1])
            values[:length, column] = some.values[end - length : end]
        targets = torch.from_numpy(some.labels[chosen].astype(np.int64))
        return Batch(
            torch.from_numpy(values), targets, torch.from_numpy(lengths), fresh=True, tokens=int(lengths.sum())
        )
