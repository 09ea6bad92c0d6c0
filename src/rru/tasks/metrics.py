"""The metrics of the tasks."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Metric:
    """A score that models are compared by.

    **Arguments:**

    - `key`: its name among the scores of a run.
    - `label`: its name in tables and figures.
    - `higher_is_better`: whether a higher value is better.
    """

    key: str
    label: str
    higher_is_better: bool = False

    @property
    def direction(self) -> str:
        """`higher` or `lower`, whichever is better."""
        return "higher" if self.higher_is_better else "lower"

    def better(self, one: float, other: float) -> bool:
        """Return whether one value is better than another."""
        return one > other if self.higher_is_better else one < other

    def best(self, values: Iterable[float]) -> float | None:
        """Return the best of some values; None if there are none."""
        return (max if self.higher_is_better else min)(values, default=None)


NLL = Metric("nll", "NLL")
PERPLEXITY = Metric("perplexity", "perplexity")
BPC = Metric("bpc", "BPC")
MASE = Metric("mase", "MASE")
MSE = Metric("mse", "MSE")
ACCURACY = Metric("accuracy", "accuracy, %", higher_is_better=True)


def from_loss(key: str, nats: float) -> float | None:
    """Return the metric of this name that a mean loss in nats amounts to; None if the loss alone does not say it."""
    units = {BPC.key: bits, PERPLEXITY.key: exponential}
    return units[key](nats) if key in units else None


def bits(nats: float) -> float:
    """Return a number of nats in bits."""
    return nats / math.log(2)


def exponential(nats: float) -> float:
    """Return exp(nats), or infinity where `math.exp` would raise OverflowError."""
    return float(torch.tensor(nats, dtype=torch.float64).exp())
