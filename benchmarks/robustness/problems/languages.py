"""Formal languages: parity, and nested brackets of two kinds (Dyck-2)."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Generator

from benchmarks.robustness.models import SequenceModel
from benchmarks.robustness.problem import CROSS_ENTROPY, Batch, Problem, fresh

BITS, BRACKETS, DEPTH = 32, 48, 8


def parity(size: int, generator: Generator) -> Batch:
    """Return bits (T, B, 1), and at each step the parity of the bits so far (T, B)."""
    bits = torch.randint(2, (BITS, size), generator=generator)
    return bits[..., None].float(), bits.cumsum(0) % 2


def dyck(size: int, generator: Generator) -> Batch:
    """Return nested brackets (T, B, 4), and the innermost open bracket at each step (T, B): none or one of two kinds.

    Brackets open and close with equal probability, up to eight deep.
    """
    opens = torch.rand(BRACKETS, size, generator=generator) < 0.5
    kinds = torch.randint(2, (BRACKETS, size), generator=generator)
    stack = torch.zeros(DEPTH + 1, size, dtype=torch.int64)  # entry 0 stays 0: nothing open
    depth, column = torch.zeros(size, dtype=torch.int64), torch.arange(size)
    brackets, innermost = [], []
    for opening, kind in zip(opens, kinds, strict=True):
        opening = (opening | (depth == 0)) & (depth < DEPTH)
        closed = stack[depth, column] - 1
        brackets.append(torch.where(opening, kind, 2 + closed))
        depth = torch.where(opening, depth + 1, depth - 1)
        stack[depth, column] = torch.where(opening, kind + 1, stack[depth, column])
        innermost.append(stack[depth, column])
    return F.one_hot(torch.stack(brackets), 4).float(), torch.stack(innermost)


PROBLEMS = (
    Problem(
        "parity",
        f"the parity of the bits so far, at each of {BITS} steps",
        partial(fresh, parity, 1),
        partial(SequenceModel, features=1, outputs=2),
        CROSS_ENTROPY,
        budget=10_000,
        steps=800,
    ),
    Problem(
        "dyck-2",
        f"the innermost open bracket, at each of {BRACKETS} brackets of two kinds, up to {DEPTH} deep",
        partial(fresh, dyck, 1),
        partial(SequenceModel, features=4, outputs=3),
        CROSS_ENTROPY,
        budget=10_000,
        steps=700,
    ),
)
