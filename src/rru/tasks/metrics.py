"""The metrics of the tasks."""

from collections.abc import Iterable
from dataclasses import dataclass


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
ACCURACY = Metric("accuracy", "accuracy, %", higher_is_better=True)
