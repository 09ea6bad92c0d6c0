"""The types that `load` returns: arrays, split into train, valid and test."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rru.data.vocabulary import Tokens, Vocabulary

if TYPE_CHECKING:
    from rru.data.own.data_json import SeriesFacts

SPLITS = ("train", "valid", "test")
KEYS = 88  # of a piano
LOWEST_NOTE = 21  # MIDI note of key 0


@dataclass(frozen=True)
class Music:
    """Piano rolls: each piece is (T, 88), 1 where a key sounds. Key 0 is MIDI note 21. A piece may have no steps."""

    train: list[NDArray[np.uint8]]
    valid: list[NDArray[np.uint8]]
    test: list[NDArray[np.uint8]]


@dataclass(frozen=True)
class Text:
    """One long text per split, as token ids (T,) of the smallest integer type that holds the vocabulary."""

    train: Tokens
    valid: Tokens
    test: Tokens
    vocabulary: Vocabulary


@dataclass(frozen=True)
class LabelledTexts:
    """Concatenated texts with labels: text i is `tokens[offsets[i]:offsets[i + 1]]`.

    **Arguments:** `tokens` (total,), `offsets` (N + 1,), `labels` (N,): indices of classes.
    """

    tokens: Tokens
    offsets: NDArray[np.int64]
    labels: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tokens, int]:
        """Return the tokens (T,) and the label of one text."""
        index = range(len(self))[index]
        return self.tokens[self.offsets[index] : self.offsets[index + 1]], int(self.labels[index])


@dataclass(frozen=True)
class Reviews:
    """Labelled reviews or other texts, the vocabulary of the training split, and the names of the classes."""

    train: LabelledTexts
    valid: LabelledTexts
    test: LabelledTexts
    vocabulary: Vocabulary
    classes: tuple[str, ...] = ("negative", "positive")


@dataclass(frozen=True)
class LabelledSequences:
    """Concatenated sequences with labels: sequence i is `values[offsets[i]:offsets[i + 1]]`.

    **Arguments:** `values` (total, columns), `offsets` (N + 1,), `labels` (N,): indices of classes; to predict numbers,
    (N, numbers), scaled.
    """

    values: NDArray[np.float32]
    offsets: NDArray[np.int64]
    labels: NDArray[np.int64] | NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Sequences:
    """Labelled sequences of numbers, scaled, and the names of the classes."""

    train: LabelledSequences
    valid: LabelledSequences
    test: LabelledSequences
    classes: tuple[str, ...]


@dataclass(frozen=True)
class LabelledImages:
    """Images (N, 28, 28) with values 0 to 255, and labels (N,) from 0 to 9."""

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


@dataclass(frozen=True)
class Series:
    """Series to forecast, one after another, N steps in total.

    **Arguments:**

    - `values`: (N,), the target; where missing, filled from a season before.
    - `observed`: (N,), where the target is known.
    - `inputs`: (N, k), standardized; those not known in advance first.
    - `lengths`: (S,), the steps of each series.
    - `splits`: (S, 2), where validation and test begin in each.
    - `facts`: layout, horizon, season, base and the scaling of each series.
    - `numbers`: (S,), their places among the series that a model was trained on, -1 for others. Default: in this order.
    """

    values: NDArray[np.float64]
    observed: NDArray[np.bool_]
    inputs: NDArray[np.float32]
    lengths: NDArray[np.int64]
    splits: NDArray[np.int64]
    facts: "SeriesFacts"
    numbers: NDArray[np.int64] | None = None


Loaded = Music | Text | Reviews | Images | Sequences | Series
"""What loading a data set gives."""


def permutation() -> NDArray[np.int64]:
    """Return the fixed order of the 784 pixels in permuted MNIST: NumPy's `RandomState(0).permutation(784)`."""
    order: NDArray[np.int64] = np.random.RandomState(0).permutation(784).astype(np.int64)
    return order


def without_empty_steps(piece: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a piece (T, 88) without the steps on which no key sounds."""
    return piece[piece.any(axis=1)]
