"""Targets for training times, and comparison with the measurements."""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.contenders import RRU_NATIVE, RRU_REFERENCE


@dataclass(frozen=True)
class Comparison:
    """The time of one contender relative to another, with targets."""

    name: str
    base: str
    mean_target: float | None = None  # for the geometric mean over all shapes
    each_target: float | None = None  # for every shape
    aims: Mapping[float, float] = field(default_factory=dict)  # stretch goals for the mean, by dropout


COMPARISONS = (
    Comparison(RRU_NATIVE, "nn.LSTM", 1.0, 1.25, aims={0.5: 0.8, 0.75: 0.65}),
    Comparison(RRU_NATIVE, "nn.GRU", 0.6),
    Comparison(RRU_NATIVE, RRU_REFERENCE, 0.4),
    Comparison(RRU_REFERENCE, "nn.LSTM"),
    Comparison(RRU_REFERENCE, "nn.GRU"),
    Comparison("rru.LSTM", "nn.LSTM", 1.3, 1.3),
    Comparison("rru.GRU", "nn.LSTM", 1.3, 1.3),
    Comparison("rru.MogrifierLSTM", "nn.LSTM", 2.5, 2.5),
)
BASES = ("nn.LSTM", "nn.GRU", RRU_REFERENCE)


def compare(measured: Mapping[str, dict[str, Any]], with_targets: bool) -> list[dict[str, Any]]:
    """Return every comparison at every measured dropout.

    **Arguments:**

    - `measured`: the results of `sections.measure_shape`, by shape.
    - `with_targets`: whether to include the targets, which apply to training only.
    """
    return [
        _summary(comparison, dropout, ratios, with_targets)
        for comparison in COMPARISONS
        for dropout, ratios in _ratios_by_dropout(comparison, measured)
    ]


def _ratios_by_dropout(
    comparison: Comparison, measured: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[float | None, dict[str, float]]]:
    """Yield each dropout with the ratio on each shape."""
    ratios: dict[float | None, dict[str, float]] = {}
    for shape, result in measured.items():
        for row in result["contenders"]:
            if row["name"] == comparison.name and comparison.base in row["ratios"]:
                ratios.setdefault(row["dropout"], {})[shape] = row["ratios"][comparison.base]
    yield from ratios.items()


def _summary(
    comparison: Comparison, dropout: float | None, ratios: dict[str, float], with_targets: bool
) -> dict[str, Any]:
    mean, worst = statistics.geometric_mean(ratios.values()), max(ratios, key=ratios.__getitem__)
    mean_target, each_target, aim = None, None, None
    if with_targets:
        mean_target, each_target = comparison.mean_target, comparison.each_target
        aim = comparison.aims.get(dropout) if dropout is not None else None
    return {
        "name": comparison.name,
        "base": comparison.base,
        "dropout": dropout,
        "shapes": len(ratios),
        "geometric_mean": mean,
        "mean_target": mean_target,
        "mean_met": None if mean_target is None else mean <= mean_target,
        "aim": aim,
        "worst": ratios[worst],
        "worst_shape": worst,
        "each_target": each_target,
        "each_met": None if each_target is None else ratios[worst] <= each_target,
    }
