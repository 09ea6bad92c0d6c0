"""The chorales that ship with the package."""

from functools import partial

import torch
from torch import Generator, Tensor

from benchmarks.robustness.models import SequenceModel
from benchmarks.robustness.problem import KEYS, Batch, Problem, Source
from rru import data

STEPS = 32


def chorales() -> Source:
    """Return windows of the chorales: keys (T, B, 88), and the keys one step later."""
    music = data.load("bach")
    train = [torch.from_numpy(piece).float() for piece in music.train if len(piece) > STEPS]
    valid = [torch.from_numpy(piece).float() for piece in music.valid if len(piece) > STEPS]

    def batch(size: int, generator: Generator) -> Batch:
        chosen = torch.randint(len(train), (size,), generator=generator).tolist()
        parts = torch.rand(size, generator=generator).tolist()
        return _windows([(train[index], part) for index, part in zip(chosen, parts, strict=True)])

    return Source(batch, [_windows([(piece, 0.0) for piece in valid])])


def _windows(places: list[tuple[Tensor, float]]) -> Batch:
    """Cut a window from each piece, from this part of it on."""
    starts = [int(part * (len(piece) - STEPS)) for piece, part in places]
    stacked = torch.stack(
        [piece[start : start + STEPS + 1] for (piece, _), start in zip(places, starts, strict=True)], 1
    )
    return stacked[:-1], stacked[1:]


PROBLEMS = (
    Problem(
        "bach",
        f"the keys of the next quarter of a chorale, at each of {STEPS}",
        chorales,
        partial(SequenceModel, features=data.KEYS, outputs=data.KEYS),
        KEYS,
        budget=40_000,
        steps=800,
        batch_size=16,
    ),
)
