"""Images of digits, pixel by pixel: MNIST, averaged over squares of pixels."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.robustness.models import SequenceModel
from benchmarks.robustness.problem import CROSS_ENTROPY, Problem, Source, stored
from rru import data

VALID = 1_000


def mnist(side: int) -> Source:
    """Return MNIST in `side` x `side` pixels."""
    images = data.load("mnist")
    train, labels = _pixels(images.train, side)
    valid, valid_labels = _pixels(images.valid, side, VALID)
    return stored(train, labels, valid, valid_labels)


def _pixels(split: data.LabelledImages, side: int, count: int | None = None) -> tuple[Tensor, Tensor]:
    """Return pixels in [0, 1], (T, N, 1), and labels (N,)."""
    pixels = torch.from_numpy(np.array(split.images[:count])).float() / 255
    pooled = F.avg_pool2d(pixels[:, None], 28 // side).flatten(1)  # (N, T)
    return pooled.T.contiguous()[..., None], torch.from_numpy(np.array(split.labels[:count])).long()


def _digits(name: str, side: int, **numbers: int) -> Problem:
    return Problem(
        name,
        f"the digit in an image of {side} x {side} pixels (MNIST), read pixel by pixel, from the final state",
        partial(mnist, side),
        partial(SequenceModel, features=1, outputs=10, from_state=True),
        CROSS_ENTROPY,
        budget=20_000,
        **numbers,
    )


PROBLEMS = (_digits("digits-49", 7, steps=900), _digits("digits-196", 14, steps=500))
