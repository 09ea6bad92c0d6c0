"""Shapes of series, from the generators of two classic data sets of the UCR archive.

Cylinder-Bell-Funnel (Saito, 1994) and Synthetic Control Charts (Alcock and Manolopoulos, 1999).
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor

from benchmarks.robustness.models import SequenceModel
from benchmarks.robustness.problem import CROSS_ENTROPY, Batch, Problem, fresh

CBF_STEPS, CHART_STEPS = 128, 60


def cylinder_bell_funnel(size: int, generator: Generator) -> Batch:
    """Return noisy series (T, B, 1) with a plateau, a rising or a falling ramp; and which it is (B,)."""
    step = torch.arange(1.0, CBF_STEPS + 1)[:, None]
    start = torch.randint(16, 33, (size,), generator=generator)
    width = torch.randint(32, 97, (size,), generator=generator)
    height = 6 + torch.randn(size, generator=generator)
    shape = torch.randint(3, (size,), generator=generator)
    rising = (step - start) / width
    profile = torch.where(shape == 0, torch.ones_like(rising), torch.where(shape == 1, rising, 1 - rising))
    noise = torch.randn(CBF_STEPS, size, generator=generator)
    inside = (step >= start) & (step <= start + width)
    return _standardized(height * profile * inside + noise), shape


def control_charts(size: int, generator: Generator) -> Batch:
    """Return charts (T, B, 1) of six kinds: normal, cyclic, up or down trend, up or down shift; and the kind (B,)."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(size, generator=generator)

    step = torch.arange(1.0, CHART_STEPS + 1)[:, None]
    cycle = uniform(10, 15) * torch.sin(2 * torch.pi * step / uniform(10, 15))
    trend = uniform(0.2, 0.5) * step
    third = CHART_STEPS // 3
    shift = uniform(7.5, 20) * (step >= torch.randint(third, 2 * third + 1, (size,), generator=generator))
    patterns = torch.stack([torch.zeros_like(cycle), cycle, trend, -trend, shift, -shift])  # (6, T, B)
    kind = torch.randint(len(patterns), (size,), generator=generator)
    noise = 2 * 3**0.5 * (2 * torch.rand(CHART_STEPS, size, generator=generator) - 1)  # standard deviation 2
    return _standardized(patterns.gather(0, kind.expand(1, CHART_STEPS, -1))[0] + noise), kind


def _standardized(series: Tensor) -> Tensor:
    """Scale each series to mean 0 and standard deviation 1, as the archive does."""
    return ((series - series.mean(0)) / series.std(0))[..., None]  # (T, B, 1)


def _shapes(name: str, about: str, draw: Callable[[int, Generator], Batch], classes: int, steps: int) -> Problem:
    return Problem(
        name,
        f"{about}, from the final state",
        partial(fresh, draw, 4),
        partial(SequenceModel, features=1, outputs=classes, from_state=True),
        CROSS_ENTROPY,
        budget=10_000,
        steps=steps,
    )


PROBLEMS = (
    _shapes(
        "cylinder-bell-funnel", f"which of 3 shapes a series of {CBF_STEPS} steps has", cylinder_bell_funnel, 3, 600
    ),
    _shapes("control-charts", f"which of 6 patterns a chart of {CHART_STEPS} steps has", control_charts, 6, 500),
)
