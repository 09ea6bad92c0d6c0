"""Find the seasons of series: the numbers of steps after which a pattern repeats."""

import math
from collections.abc import Sequence

import numpy as np

from rru.data.own.scaling import Values
from rru.data.own.times import Frequency

MAX_SEASON = 400  # steps, where it is not known from the frequency
MIN_SEASONS = 3  # of a longer season that the training part must have


def find_seasons(
    frequency: Frequency | None, training: Sequence[Values], given: int | None
) -> tuple[tuple[int, ...], str]:
    """Return the seasons of series, shortest first, at least one; and where they are from.

    **Arguments:** `training`: the training part of each series; `given`: the season that the user names.
    """
    longest = max(map(len, training))
    if given is not None:
        if given >= longest:
            raise ValueError(f"season must be less than the {longest:,} steps of the training part, got {given}")
        return (given,), f"season {given} as given"
    usual = () if frequency is None else frequency.seasons
    if usual and 2 * usual[0] <= longest:
        fitting = (usual[0], *(season for season in usual[1:] if MIN_SEASONS * season <= longest))
        plural = "seasons" if len(fitting) > 1 else "season"
        return fitting, f"{plural} {' and '.join(map(str, fitting))} by the frequency"
    season = int(np.median([detected_season(values, MAX_SEASON) for values in training]))
    return ((season,), f"season {season} found by autocorrelation") if season > 1 else ((1,), "no season")


def detected_season(values: Values, most: int) -> int:
    """Return the period of the strongest repetition in a series, from its autocorrelation; 1 if there is none."""
    changes = values - np.polyval(np.polyfit(np.arange(len(values)), values, 1), np.arange(len(values)))
    most = min(most, len(values) // 3)
    if most < 3 or not changes.any():
        return 1
    power = float((changes**2).sum())
    correlations = np.array([(changes[lag:] * changes[: len(changes) - lag]).sum() / power for lag in range(most + 2)])
    negative = np.flatnonzero(correlations < 0)
    if not len(negative):
        return 1
    first = int(negative[0])
    peaks = [
        lag for lag in range(max(first, 2), most + 1) if correlations[lag] == correlations[lag - 1 : lag + 2].max()
    ]
    best = max(peaks, key=lambda lag: float(correlations[lag]), default=1)
    return best if peaks and correlations[best] > max(0.2, 2 / math.sqrt(len(values))) else 1
