"""Classification of whole sequences: whether a review is positive, which digit an image shows."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.data import Images, LabelledImages, LabelledTexts, Reviews, permutation
from rru.nn import checks
from rru.tasks.batches import Batch, Batches, by_length, groups, shuffled
from rru.tasks.models import device_of, image_model, review_model
from rru.tasks.task import SPLITS, Task, limited

LABEL_SMOOTHING = 0.1
PIXELS = 784


class ClassificationTask(Task):
    """What classifications share. Score: `accuracy`, in percent.

    **Arguments:**

    - `name`, `context`, `batch_size`: as for `Task`.
    - `lengths`: how many steps each sequence of each split has.
    """

    metric = "accuracy"
    higher_is_better = True

    def __init__(self, name: str, context: int, batch_size: int, lengths: Mapping[str, NDArray[np.int64]]) -> None:
        super().__init__(name, context, batch_size)
        self._lengths = lengths
        for split in SPLITS:
            if not len(lengths[split]):
                raise ValueError(f"{name}: {split} must have at least one sequence, got none")

    def steps_per_epoch(self) -> int:
        return len(groups(len(self._lengths["train"]), self.batch_size))

    def epoch(self, generator: torch.Generator) -> Batches:
        order = shuffled(len(self._lengths["train"]), self.batch_size, generator)
        return Batches(len(order), lambda number: self._batch("train", order[number]))

    def loss(self, model: nn.Module, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        batch = batch.to(device_of(model))
        logits, _ = model(batch.inputs, lengths=batch.lengths)  # (B, classes)
        return F.cross_entropy(logits, batch.targets, label_smoothing=LABEL_SMOOTHING), None

    @abstractmethod
    def _batch(self, split: str, numbers: NDArray[np.int64]) -> Batch:
        """The sequences of these numbers, trimmed to the longest."""

    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        right, loss = 0, 0.0
        lengths = self._lengths[split]
        for numbers in by_length(lengths, self.batch_size):
            batch = self._batch(split, numbers).to(device_of(model))
            logits, _ = model(batch.inputs, lengths=batch.lengths)
            each = F.cross_entropy(logits, batch.targets, label_smoothing=LABEL_SMOOTHING, reduction="none")
            loss += float(each.double().sum())
            right += int((logits.argmax(dim=-1) == batch.targets).sum())
        return {"accuracy": 100 * right / len(lengths), "loss": loss / len(lengths)}


class ReviewTask(ClassificationTask):
    """Whether a review is positive, from its last `context` words; one without words is read as one unknown word.

    **Arguments:**

    - `name`: what it is called.
    - `reviews`: the reviews, and their vocabulary.
    - `context`: the most words of a review.
    - `batch_size`: reviews in a batch.
    - `embedding_size`: of a word, unless the model's options have it.
    - `limit`, `evaluation_limit`: the most reviews to train on, and to validate and test on, taken evenly over all,
      which may lie sorted by label; default: all.
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
        super().__init__(name, context, batch_size, lengths)

    def model(self, cell: str, cell_options: Mapping[str, Any], budget: int) -> nn.Module:
        options = {"embedding_size": self._embedding_size, **cell_options}
        return review_model(cell, options, budget, len(self.vocabulary))

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
    """Which digit an image shows, read pixel by pixel, each from 0 to 1.

    **Arguments:**

    - `name`: what it is called.
    - `images`: the images.
    - `permuted`: whether pixels come in the order of `rru.data.permutation()`, rather than row by row.
    - `batch_size`: images in a batch.
    - `limit`, `evaluation_limit`: the most images to train on, and to validate and test on; default: all.
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
            raise ValueError(f"context must be {PIXELS}, every pixel of an image; got {context}")
        self.permuted = checks.flag("permuted", permuted)
        self._order = permutation() if permuted else np.arange(PIXELS)
        self._images: dict[str, LabelledImages] = {split: getattr(images, split) for split in SPLITS}
        lengths: dict[str, NDArray[np.int64]] = {}
        for split, some in self._images.items():
            lengths[split] = np.full(limited(len(some), split, limit, evaluation_limit), PIXELS)
        super().__init__(name, context, batch_size, lengths)

    def model(self, cell: str, cell_options: Mapping[str, Any], budget: int) -> nn.Module:
        return image_model(cell, cell_options, budget)

    def _batch(self, split: str, numbers: NDArray[np.int64]) -> Batch:
        some = self._images[split]
        pixels = some.images[numbers].reshape(len(numbers), PIXELS)[:, self._order]  # (B, 784)
        inputs = torch.from_numpy(np.ascontiguousarray(pixels.T)).float().div_(255)[..., None]  # (784, B, 1)
        targets = torch.from_numpy(some.labels[numbers].astype(np.int64))
        return Batch(inputs, targets, None, fresh=True, tokens=inputs.numel())
