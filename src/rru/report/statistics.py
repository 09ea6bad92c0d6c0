"""Statistics over seeds: mean, deviation, and whether a lead is significant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
MIN_SEEDS = 4
"""With fewer values, too many resamples repeat a single value, which has no deviation."""


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean."""
    return float(np.mean(values))


def deviation(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1); None for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Return the studentised bootstrap interval of a mean. The result is deterministic.

    The plain percentile interval is too narrow for a few seeds: with five it misses the true mean in 17 % of cases
    instead of 5 %. The studentised interval misses it in about 5 %.

    **Arguments:**

    - `values`: at least four; for a paired comparison, the difference of each pair.
    - `level`: how often such an interval should contain the true mean.
    """
    count = len(values)
    if count < MIN_SEEDS:
        raise ValueError(f"an interval needs at least {MIN_SEEDS} values, got {count}")
    sample = np.asarray(values, dtype=np.float64)
    drawn = sample[np.random.default_rng(0).integers(count, size=(RESAMPLES, count))]  # (resamples, count)
    with np.errstate(divide="ignore", invalid="ignore"):  # a resample that repeats a single value has no deviation
        far = (drawn.mean(axis=1) - sample.mean()) / drawn.std(axis=1, ddof=1)
    least, most = np.quantile(
        np.nan_to_num(far, posinf=np.inf, neginf=-np.inf), [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf"
    )
    spread = sample.std(ddof=1)
    return float(sample.mean() - most * spread), float(sample.mean() - least * spread)


@dataclass(frozen=True)
class Verdict:
    """The best line of a comparison.

    **Arguments:**

    - `best`: its name; empty if there are fewer than two to compare.
    - `shown`: whether to show it as the winner.
    - `reason`: why, or why not.
    - `significant`: whether chance hardly explains its lead.
    """

    best: str = ""
    shown: bool = False
    reason: str = ""
    significant: bool = False


def verdict(scores: Mapping[str, Mapping[int, float]], higher_is_better: bool) -> Verdict:
    """Find the best line.

    **Arguments:**

    - `scores`: for each line, the score by seed.
    - `higher_is_better`: whether a higher score is better.

    **Returns:** with one seed each, the best of them, marked as one seed. With several, the best mean; it is shown as
    the winner only if the bootstrap interval of the mean difference from every other line, paired by seed, excludes
    zero.
    """
    scores = {line: values for line, values in scores.items() if values}
    if len(scores) < 2:
        return Verdict()
    ranked = sorted(scores, key=lambda line: mean(list(scores[line].values())), reverse=higher_is_better)
    best, others = ranked[0], ranked[1:]
    if all(len(values) == 1 for values in scores.values()):
        if mean(list(scores[best].values())) == mean(list(scores[others[0]].values())):
            return Verdict(reason="two are equal with one seed each")
        return Verdict(best, True, "one seed each, not significant")
    for other in others:
        differences = paired(scores[best], scores[other])
        if len(differences) < MIN_SEEDS:
            few = f"{len(differences)} seed{'s' * (len(differences) != 1)} in common with {other}"
            return Verdict(best, False, f"best mean, but not significant: {few}, {MIN_SEEDS} are needed")
        low, high = interval(differences)
        if (low <= 0) if higher_is_better else (high >= 0):
            doubt = "not significant" if low <= 0 <= high else "worse on the seeds in common"
            span = f"{low:+.3g} to {high:+.3g} (95 % CI)".replace("-", "\N{MINUS SIGN}")
            return Verdict(best, False, f"best mean, but {doubt}: differs from {other} by {span}")
    low, high = sorted(map(abs, interval(paired(scores[best], scores[others[0]]))))
    reason = f"significant: beats {others[0]}, the runner-up, by {low:.3g} to {high:.3g} (95 % CI)"
    return Verdict(best, True, reason, significant=True)


def paired(scores: Mapping[int, float], others: Mapping[int, float]) -> list[float]:
    """Return the differences for the seeds that both have."""
    return [scores[seed] - others[seed] for seed in sorted(scores) if seed in others]
