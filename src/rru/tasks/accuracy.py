"""How good forecasts are: measures of each value, and their means over groups of values."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rru.tasks.forecaster import MEDIAN, QUANTILES

INTERVALS = {80: (1, 3), 95: (0, 4)}
"""The intervals by their percentage: the places of their limits in QUANTILES."""
TRIMMED = 0.05  # share of the series, the hardest to forecast, that does not count when epochs are compared
MEASURES = ("mase", "smape", "mae", "rmse", "pinball", "coverage_80", "coverage_95")

Values = NDArray[np.float64]
Measures = Mapping[str, Values]
"""Values of each measure, by its name; NaN where it is not known."""


def errors(actual: Values, forecast: Values, naive: Values) -> dict[str, Values]:
    """Return `mase`, `smape`, `mae` and the square for `rmse` of every value.

    **Arguments:**

    - `actual`: what came true, NaN where it is not known; of any shape.
    - `forecast`: of the same shape.
    - `naive`: what MASE divides by, of a shape that fits.
    """
    size, both = np.abs(forecast - actual), np.abs(actual) + np.abs(forecast)
    share = np.divide(200 * size, both, out=np.zeros_like(size), where=both != 0)
    return {"mase": size / naive, "smape": share, "mae": size, "rmse": size**2}


def measures(actual: Values, quantiles: Values, naive: Values) -> dict[str, Values]:
    """Return all measures of quantiles (..., 5) for values (...), as `errors` does; coverage in per cent."""
    found = errors(actual, quantiles[..., MEDIAN], naive)
    above, levels = actual[..., None] - quantiles, np.array(QUANTILES)
    found["pinball"] = np.maximum(levels * above, (levels - 1) * above).mean(-1)
    for share, (low, high) in INTERVALS.items():
        inside = (quantiles[..., low] <= actual) & (actual <= quantiles[..., high])
        found[f"coverage_{share}"] = np.where(np.isnan(actual), np.nan, np.where(inside, 100.0, 0.0))
    return found


class Means:
    """Means of measures over groups of values, of which more are added little by little.

    **Arguments:** `groups`: how many there are.
    """

    def __init__(self, groups: int = 1) -> None:
        self.groups = groups
        self._sums: dict[str, Values] = {}
        self._counts: dict[str, Values] = {}

    def add(self, found: Measures, group: NDArray[np.int64] | int = 0) -> None:
        """Add measures; `group` is the number of each value's group, of a shape that fits."""
        for name, values in found.items():
            there, groups = ~np.isnan(values), np.broadcast_to(group, values.shape)
            sums = np.bincount(groups[there], values[there], self.groups)
            self._sums[name] = np.asarray(self._sums.get(name, 0.0) + sums, np.float64)
            counts = np.bincount(groups[there], minlength=self.groups)
            self._counts[name] = np.asarray(self._counts.get(name, 0.0) + counts, np.float64)

    @property
    def counts(self) -> Values:
        """How many values each group has, (groups,)."""
        return next(iter(self._counts.values()), np.zeros(self.groups))

    def means(self) -> dict[str, Values]:
        """Return the means (groups,) of each measure; NaN for a group without values."""
        found = {}
        for name, sums in self._sums.items():
            mean = np.divide(sums, self._counts[name], out=np.full(self.groups, np.nan), where=self._counts[name] > 0)
            found[name] = np.sqrt(mean) if name.startswith("rmse") else mean
        return found


def trimmed_mean(losses: NDArray[np.float64], series: NDArray[np.int64]) -> float:
    """Return the mean over series of the mean losses of their windows (W,), without the highest."""
    means = np.sort(np.bincount(series, losses)[np.unique(series)] / np.bincount(series)[np.unique(series)])
    return float(means[: max(math.ceil(len(means) * (1 - TRIMMED)), 1)].mean())
