"""Forecasts of the hourly series of the M4 competition."""

import csv
from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Generator, Tensor

from benchmarks.robustness.models import SequenceModel
from benchmarks.robustness.problem import ABSOLUTE, Batch, Problem, Source
from rru import data

CONTEXT, DAY = 72, 24
LENGTH = CONTEXT + DAY


@cache
def hourly() -> list[Tensor]:
    """Return the 414 training series (T,)."""
    path = data.data_dir() / "series" / "Hourly-train.csv"
    with path.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    return [torch.tensor([float(value) for value in row[1:] if value]) for row in rows]


def windows(places: list[tuple[Tensor, int]]) -> Tensor:
    """Cut three days and the day after from each series, from this step on: (T, B), scaled by the three days alone."""
    values = torch.stack([series[start : start + LENGTH] for series, start in places], dim=1)
    context = values[:CONTEXT]
    smallest = (1e-3 * context.abs().mean(0)).clamp_min(1e-6)  # some series do not change for days
    return (values - context.mean(0)) / context.std(0).clamp_min(smallest)


def next_hour(values: Tensor) -> Batch:
    """Return three days (T, B, 1), and the change to the next hour at each step (T, B, 1)."""
    values = values[: CONTEXT + 1, :, None]
    return values[:-1], values.diff(dim=0)


def next_day(values: Tensor) -> Batch:
    """Return three days (T, B, 1), and how far the 24 hours after are from the last one (B, 24)."""
    return values[:CONTEXT, :, None], (values[CONTEXT:] - values[CONTEXT - 1]).T


def forecasts(task: Callable[[Tensor], Batch]) -> Source:
    """Return windows of all series. The last four days of each are for validation."""
    series = hourly()

    def batch(size: int, generator: Generator) -> Batch:
        chosen = [series[index] for index in torch.randint(len(series), (size,), generator=generator).tolist()]
        parts = torch.rand(size, generator=generator).tolist()
        starts = [int(part * (len(values) - 2 * LENGTH)) for values, part in zip(chosen, parts, strict=True)]
        return task(windows(list(zip(chosen, starts, strict=True))))

    return Source(batch, [task(windows([(values, len(values) - LENGTH) for values in series]))])


PROBLEMS = (
    Problem(
        "hourly-next",
        f"the change to the next hour, at each of {CONTEXT} hours of an M4 series",
        partial(forecasts, next_hour),
        partial(SequenceModel, features=1, outputs=1),
        ABSOLUTE,
        budget=10_000,
        steps=500,
    ),
    Problem(
        "hourly-day",
        f"the next {DAY} hours of an M4 series, from the final state after {CONTEXT} hours",
        partial(forecasts, next_day),
        partial(SequenceModel, features=1, outputs=DAY, from_state=True),
        ABSOLUTE,
        budget=15_000,
        steps=600,
    ),
)
