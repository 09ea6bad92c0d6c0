"""What loading gives: arrays, split into train, valid and test."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rru.data.vocabulary import Vocabulary


@dataclass(frozen=True)
class Music:
    """Piano rolls: each piece (T, 88), 1 where a key sounds; key 0 is the MIDI note 21. A piece may be empty."""

    train: list[NDArray[np.uint8]]
    valid: list[NDArray[np.uint8]]
    test: list[NDArray[np.uint8]]


@dataclass(frozen=True)
class Text:
    """One long text for each split, as token numbers (T,) of the smallest type that holds the vocabulary."""

    train: NDArray[Any]
    valid: NDArray[Any]
    test: NDArray[Any]
    vocabulary: Vocabulary


@dataclass(frozen=True)
class LabelledTexts:
    """Texts one behind the other: text i is `tokens[offsets[i]:offsets[i + 1]]`.

    **Arguments:** `tokens` (total,), `offsets` (N + 1,), `labels` (N,): 0 negative, 1 positive.
    """

    tokens: NDArray[np.uint16]
    offsets: NDArray[np.int64]
    labels: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint16], int]:
        """Tokens (T,) and label of one text."""
        index = range(len(self))[index]
        return self.tokens[self.offsets[index] : self.offsets[index + 1]], int(self.labels[index])


@dataclass(frozen=True)
class Reviews:
    """Labelled reviews, and the vocabulary of the training part."""

    train: LabelledTexts
    valid: LabelledTexts
    test: LabelledTexts
    vocabulary: Vocabulary


@dataclass(frozen=True)
class LabelledImages:
    """Images (N, 28, 28) of values 0 to 255, and labels (N,) from 0 to 9."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Images:
    """Labelled images."""

    train: LabelledImages
    valid: LabelledImages
    test: LabelledImages


def permutation() -> NDArray[np.int64]:
    """The order of the 784 pixels in permuted MNIST: NumPy's `RandomState(0).permutation(784)`, the same for good."""
    order: NDArray[np.int64] = np.random.RandomState(0).permutation(784).astype(np.int64)
    return order


def without_empty_steps(piece: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A piece (T, 88) without the steps at which no key sounds."""
    return piece[piece.any(axis=1)]
