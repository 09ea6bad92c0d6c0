"""Pairs of sentences, with the model of pytorch/examples' SNLI: three relations that only the states can tell."""

from functools import partial

import torch
from torch import Generator

from benchmarks.robustness.models import PairModel
from benchmarks.robustness.problem import CROSS_ENTROPY, Batch, Problem, fresh

TOKENS, LENGTH = 50, 12


def pairs(size: int, generator: Generator) -> Batch:
    """Return pairs (T, B, 2) of a sentence and the same one, the reversed one or another; and which it is (B,)."""
    sentences = torch.randint(TOKENS, (LENGTH, size), generator=generator)
    others = torch.randint(TOKENS, (LENGTH, size), generator=generator)
    relation = torch.randint(3, (size,), generator=generator)
    second = torch.stack([sentences, sentences.flip(0), others]).gather(0, relation.expand(1, LENGTH, -1))[0]
    return torch.stack([sentences, second], dim=-1), relation


PROBLEMS = (
    Problem(
        "pairs",
        f"whether two sentences of {LENGTH} tokens are equal, reversed or unrelated (pytorch/examples' SNLI model)",
        partial(fresh, pairs, 4),
        partial(PairModel, tokens=TOKENS, classes=3),
        CROSS_ENTROPY,
        budget=215_500,  # nn.LSTM of hidden size 48
        steps=300,
        batch_size=64,
        layers=(2,),
    ),
)
