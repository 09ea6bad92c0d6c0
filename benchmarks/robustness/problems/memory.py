"""Remembering over many steps: the adding and copy memory problems (Hochreiter and Schmidhuber, 1997)."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Generator

from benchmarks.robustness.models import SequenceModel
from benchmarks.robustness.problem import CROSS_ENTROPY, SQUARED, Batch, Problem, fresh

SYMBOLS, COPIED = 8, 10
BLANK, GO = SYMBOLS, SYMBOLS + 1


def adding(length: int, size: int, generator: Generator) -> Batch:
    """Return numbers with marks (T, B, 2), and the sums of the two marked numbers (B, 1)."""
    numbers = torch.rand(length, size, generator=generator)
    marks = torch.zeros(length, size)
    for low, high in ((0, length // 2), (length // 2, length)):  # one mark in each half
        marks[torch.randint(low, high, (size,), generator=generator), torch.arange(size)] = 1
    return torch.stack([numbers, marks], dim=-1), (numbers * marks).sum(0)[:, None]


def copying(delay: int, size: int, generator: Generator) -> Batch:
    """Return ten symbols, a delay and ten steps to write them in, as (T, B, 10); and the symbols (10, B)."""
    symbols = torch.randint(SYMBOLS, (COPIED, size), generator=generator)
    waiting = torch.full((delay + COPIED, size), BLANK)
    waiting[delay - 1] = GO
    return F.one_hot(torch.cat([symbols, waiting]), SYMBOLS + 2).float(), symbols


def _adding(length: int, **numbers: int) -> Problem:
    return Problem(
        f"adding-{length}",
        f"the sum of two marked numbers among {length}, from the final state",
        partial(fresh, partial(adding, length)),
        partial(SequenceModel, features=2, outputs=1, from_state=True),
        SQUARED,
        budget=10_000,
        **numbers,
    )


def _copying(delay: int, **numbers: int) -> Problem:
    return Problem(
        f"copy-{delay}",
        f"ten symbols of eight, after {delay} steps",
        partial(fresh, partial(copying, delay), 1),
        partial(SequenceModel, features=SYMBOLS + 2, outputs=SYMBOLS),
        CROSS_ENTROPY,
        budget=10_000,
        **numbers,
    )


PROBLEMS = (
    _adding(100, steps=1200),
    _adding(400, steps=400, batch_size=16),
    _copying(50, steps=800),
    _copying(100, steps=500),
)
