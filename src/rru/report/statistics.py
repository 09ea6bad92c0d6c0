"""What several seeds of the same settings say: mean, spread, and whether a lead is more than luck."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
LEAST_SEEDS = 5
"""Below this no lead counts as supported: with three seeds, equal signs come by luck once in four times."""


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return float(np.mean(values))


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample (n - 1); None for a single value, which has none."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The percentile bootstrap interval of a mean; the same values always give the same interval.

    **Arguments:**

    - `values`: at least two; for a paired comparison, the difference of each pair.
    - `level`: how often such an interval should hold the true mean.
    """
    if len(values) < 2:
        raise ValueError(f"an interval needs at least 2 values, got {len(values)}")
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    means = np.asarray(values, dtype=np.float64)[drawn].mean(axis=1)  # (resamples,)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Verdict:
    """Which line of a comparison is best.

    **Arguments:**

    - `best`: its name; empty if there are not two to compare.
    - `shown`: whether it may be shown as the winner.
    - `reason`: on what ground, or why not.
    """

    best: str = ""
    shown: bool = False
    reason: str = ""


def verdict(scores: Mapping[str, Mapping[int, float]], higher_is_better: bool) -> Verdict:
    """The best of some lines.

    **Arguments:**

    - `scores`: of each line, the score by seed.
    - `higher_is_better`: whether more is better.

    **Returns:** with one seed each the best of them, said to be one seed; with several the best mean, which is shown as
    the winner only if the bootstrap interval of the mean difference from every other line, paired by seed, leaves out
    zero.
    """
    scores = {line: values for line, values in scores.items() if values}
    if len(scores) < 2:
        return Verdict()
    ranked = sorted(scores, key=lambda line: mean(list(scores[line].values())), reverse=higher_is_better)
    best, others = ranked[0], ranked[1:]
    if all(len(values) == 1 for values in scores.values()):
        if mean(list(scores[best].values())) == mean(list(scores[others[0]].values())):
            return Verdict(reason="two are equal; one seed each")
        return Verdict(best, True, "one seed each, not significant")
    for other in others:
        differences = paired(scores[best], scores[other])
        if len(differences) < LEAST_SEEDS:
            few = f"{len(differences)} seed{'s' * (len(differences) != 1)} in common with {other}"
            return Verdict(best, False, f"best mean, but not supported: {few}, {LEAST_SEEDS} are needed")
        low, high = interval(differences)
        if low <= 0 <= high:
            return Verdict(
                best, False, f"best mean, but not supported: mean difference from {other} {_span(low, high)}"
            )
    low, high = interval(paired(scores[best], scores[others[0]]))
    return Verdict(best, True, f"supported: mean difference from {others[0]}, the next best, {_span(low, high)}")


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    """The differences on the seeds that both have."""
    return [one[seed] - other[seed] for seed in sorted(one) if seed in other]


def _span(low: float, high: float) -> str:
    return f"{low:+.3g} to {high:+.3g} (95 %)".replace("-", "\N{MINUS SIGN}")
