"""Simple forecasts, and the scaling of a series from its training part."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

JSON = Mapping[str, Any]
Values = NDArray[np.float64]
Places = NDArray[np.int64]

LAST, SEASONAL, AVERAGE, GROWTH, MEAN = "last", "seasonal", "average", "growth", "mean"
BASES = (LAST, SEASONAL, AVERAGE, GROWTH, MEAN)
AVERAGED = 4  # seasons
MIN_SPAN = 8  # steps of a mean
MAX_ORIGINS = 2000  # to compare simple forecasts on
MIN_DIFFERENCE = 1e-9  # between seasons, in standard deviations: less is rounding
MIN_LOG_SHARE = 0.01  # of the median that the lowest value of a series must have for its logarithm to be taken


def simple_forecasts(
    base: str, values: Values, origins: Places, starts: Places, horizon: int, season: int
) -> NDArray[np.float64]:
    """Return simple forecasts (B, horizon) from `origins` (B,), the last known places in `values`.

    **Arguments:**

    - `base`: `last` repeats the last value; `seasonal` the last season; `average` the mean of the last four
      seasons; `growth` the last season plus the change of the mean from one season to
      the next; `mean` the mean of the last season, or of eight values.
    - `values`: (N,), all series one after another.
    - `starts`: (B,), where the series of each origin begins. Where there is no season before, `seasonal` is `last`.
    - `season`: steps after which a pattern repeats.
    """
    last = values[origins][:, None]
    if base == LAST:
        return np.repeat(last, horizon, axis=1)
    if base == MEAN:
        return np.repeat(recent_mean(values, origins, starts, season)[:, None], horizon, axis=1)
    steps = np.arange(1, horizon + 1)
    seasons = -(-steps // season)
    places = origins[:, None] + steps - seasons * season
    seasonal = np.where(places >= starts[:, None], values[np.maximum(places, 0)], last)
    if base == SEASONAL:
        return seasonal
    if base == AVERAGE:
        return _averaged(seasonal, values, starts, places, season)
    before = origins - season
    growth = _mean(values, origins, season) - _mean(values, np.maximum(before, 0), season)
    return seasonal + seasons * np.where(before - season + 1 >= starts, growth, 0.0)[:, None]


def _averaged(seasonal: Values, values: Values, starts: Places, places: Places, season: int) -> NDArray[np.float64]:
    """Return the mean over seasons of the last season (B, H) and those before it, as far as they are there."""
    total, count = seasonal.copy(), np.ones(seasonal.shape)
    for back in range(1, AVERAGED):
        there = places - back * season >= starts[:, None]
        total += np.where(there, values[np.maximum(places - back * season, 0)], 0.0)
        count += there
    return total / count


def recent_mean(values: Values, origins: Places, starts: Places, season: int) -> Values:
    """Return the mean (B,) of the last season before each origin, or of the last eight values if that is more."""
    span = np.minimum(max(season, MIN_SPAN), origins - starts + 1)
    return _mean(values, origins, span)


def _mean(values: Values, ends: Places, span: Places | int) -> Values:
    """Return the means of the `span` values up to each end, itself included."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray((sums[ends + 1] - sums[np.maximum(ends + 1 - span, 0)]) / span)


@dataclass(frozen=True)
class ColumnScale:
    """The `mean` and `deviation` of each column of sequences, in the training part."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, values: Values) -> "ColumnScale":
        """Find the scale of the rows (T, columns) of the training part; NaN is missing."""
        there = ~np.isnan(values)
        counts = np.maximum(there.sum(axis=0), 1)
        mean = np.where(there, values, 0).sum(axis=0) / counts
        deviation = np.sqrt((np.where(there, values - mean, 0) ** 2).sum(axis=0) / counts)
        return cls(tuple(mean.tolist()), tuple((deviation + (deviation == 0)).tolist()))

    @classmethod
    def from_fields(cls, fields: JSON, columns: int) -> "ColumnScale":
        """Build a scale from JSON values; raise ValueError if it is not for so many columns."""
        for name in ("mean", "deviation"):
            numbers = fields[name]
            if not isinstance(numbers, list | tuple) or len(numbers) != columns:
                raise ValueError(f"scale must have one {name} for each of {columns} columns")
            if not all(math.isfinite(number) for number in numbers):
                raise ValueError(f"scale must have finite numbers as {name}")
        if min(fields["deviation"]) <= 0:
            raise ValueError("scale must have positive deviations")
        return cls(tuple(fields["mean"]), tuple(fields["deviation"]))

    def apply(self, values: Values) -> NDArray[np.float32]:
        """Scale a sequence (T, columns). A missing value is replaced by the one before it, or else by the mean."""
        scaled = (values - np.array(self.mean)) / np.array(self.deviation)
        return np.asarray(np.nan_to_num(carried(scaled)), np.float32)


def carried(values: Values) -> Values:
    """Replace NaN in (T, columns) by the value before it; at the beginning NaN stays."""
    rows = np.where(np.isnan(values), 0, np.arange(len(values))[:, None])
    return np.asarray(np.take_along_axis(values, np.maximum.accumulate(rows, axis=0), axis=0))


@dataclass(frozen=True)
class Scaling:
    """How the values of a series are scaled; found from its training part.

    **Arguments:**

    - `floor`: the lowest value before the logarithm is taken; None if values are taken as they are.
    - `centre`, `deviation`: mean and standard deviation.
    - `spread`: standard deviation from the mean of the season before.
    - `unit`: what values are divided by: the typical spread of all series on a logarithmic scale, else that of its own.
      In files of version 0.2, the mean error of a simple forecast.
    - `naive`: mean absolute difference from the season before, in the units of the file: what MASE divides by.
    - `least`: the lowest value that a forecast may have; None if there is none.
    """

    floor: float | None
    centre: float
    deviation: float
    spread: float
    unit: float
    naive: float
    least: float | None = None

    @classmethod
    def of(cls, values: Values, season: int, observed: NDArray[np.bool_] | None = None) -> "Scaling":
        """Find the scaling of the training part (T,) of a series; `unit` is its own spread.

        **Arguments:** `values`: with missing ones filled; `observed`: (T,), which are known; None if all are.
        """
        low = float(values.min())
        log = low > 0 and low >= MIN_LOG_SHARE * float(np.median(values))
        floor = low / 10 if log else None
        scaled = transformed(values, floor)
        origins = np.arange(min(len(values) - 1, max(season, MIN_SPAN)), len(values))
        deviation = float(np.std(scaled))
        spread = float(np.std(scaled[origins] - recent_mean(scaled, origins, np.zeros_like(origins), season)))
        spread = spread or deviation or 1.0
        naive = seasonal_difference(values, season, observed)
        return cls(floor, float(np.mean(scaled)), deviation or 1.0, spread, spread, naive, 0.0 if low >= 0 else None)

    @classmethod
    def stepwise(cls, values: Values, season: int, horizon: int, base: str, *, log: bool) -> "Scaling":
        """Find the scaling of a new series for a model of version 0.2, from its values (T,).

        `log` asks for the logarithm, which a series with negative values does not have.
        """
        floor = float(values[values > 0].min()) / 10 if log and values.min() >= 0 < values.max() else None
        scaled = transformed(values, floor)
        origins, starts = _origins(scaled, season, horizon)
        deviation = float(np.std(scaled))
        spread = float(np.std(scaled[origins] - recent_mean(scaled, origins, starts, season)))
        unit = base_errors(base, scaled, season, horizon)
        smallest = 1e-6 * (deviation or 1.0)
        deviation, spread, unit = (max(number, smallest) for number in (deviation, spread, unit))
        return cls(floor, float(np.mean(scaled)), deviation, spread, unit, seasonal_difference(values, season))

    @classmethod
    def from_fields(cls, fields: JSON) -> "Scaling":
        """Build a scaling from JSON values; raise ValueError if one is not finite, or not positive where it must."""
        numbers = {name: float(fields[name]) for name in ("centre", "deviation", "spread", "unit", "naive")}
        floor = None if fields["floor"] is None else float(fields["floor"])
        least = None if fields.get("least") is None else float(fields["least"])
        wrong = [
            name for name, value in numbers.items() if not math.isfinite(value) or (name != "centre" and value <= 0)
        ]
        if wrong or (floor is not None and not 0 < floor < math.inf):
            raise ValueError(f"{', '.join(wrong) or 'floor'} of a scaling must be finite and positive")
        if least is not None and not math.isfinite(least):
            raise ValueError(f"least of a scaling must be finite, got {least}")
        return cls(floor, **numbers, least=least)


def pooled(scalings: Sequence[Scaling]) -> list[Scaling]:
    """Return scalings whose logarithms have one unit, so that a change in per cent is the same in all series."""
    spreads = [scaling.spread for scaling in scalings if scaling.floor is not None]
    unit = float(np.median(spreads)) if spreads else 1.0
    return [scaling if scaling.floor is None else replace(scaling, unit=unit) for scaling in scalings]


def seasonal_difference(values: Values, season: int, observed: NDArray[np.bool_] | None = None) -> float:
    """Return the mean absolute difference from the season before, or from the last value if there are few seasons.

    Values that are not `observed` (T,) do not count, if there are others; None: all are. If a series repeats itself but
    for rounding, return its standard deviation; 1 if it does not change.
    """
    if not len(values) or not np.ptp(values):
        return 1.0
    lag = season if len(values) > 2 * season else 1
    differences, deviation = np.abs(values[lag:] - values[:-lag]), float(np.std(values))
    if observed is not None and (both := observed[lag:] & observed[:-lag]).any():
        differences = differences[both]
    difference = float(differences.mean())
    return difference if difference > MIN_DIFFERENCE * deviation else deviation


def transformed(values: Values, floor: float | None) -> Values:
    """Return the logarithm of values, at least of `floor`; the values themselves if `floor` is None."""
    return values if floor is None else np.log(np.maximum(values, floor))


def restored(values: Values, floor: float | None) -> Values:
    """Reverse `transformed`."""
    return values if floor is None else np.exp(np.minimum(values, 700.0))


def base_errors(base: str, values: Values, season: int, horizon: int) -> float:
    """Return the mean absolute error of a simple forecast on a training part."""
    origins, starts = _origins(values, season, horizon)
    horizon = min(horizon, len(values) - 1 - int(origins[0]))
    origins = origins[origins + horizon < len(values)]
    forecast = simple_forecasts(base, values, origins, starts[: len(origins)], horizon, season)
    return float(np.abs(forecast - values[origins[:, None] + np.arange(1, horizon + 1)]).mean())


def _origins(values: Values, season: int, horizon: int) -> tuple[Places, Places]:
    """Return evenly spaced origins in a training part, and zeros."""
    first = min(max(season, MIN_SPAN), max(len(values) - 1 - horizon, 0))
    origins = np.arange(first, max(len(values) - horizon, first + 1))
    origins = origins[:: -(-len(origins) // MAX_ORIGINS)]
    return origins, np.zeros(len(origins), np.int64)
