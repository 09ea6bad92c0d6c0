"""The linear forecast that a forecasting model starts from: a simple forecast, improved by ridge regression.

Every simple forecast (the last value, the last season, their mean, growth) is linear in the values of a window. Ridge
regression moves it towards the linear map that fits the training windows best. Which simple forecast, which level to
centre windows on and how far to move are chosen by errors on later windows than those fitted to.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rru.data.own.scaling import AVERAGE, BASES, GROWTH, SEASONAL, simple_forecasts
from rru.tasks.forecaster import WindowShape

Array = NDArray[np.float64]
STRENGTHS = (1e3, 1e2, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.001)
"""How strongly the ridge holds on to the simple forecast, in mean variances of the values."""
FOLDS = (0.5, 0.65, 0.8)  # where the windows end that a fold is fitted to, as a share of the training part
FOLD = 0.2  # share of the training part that a fold is scored on
MAX_WINDOWS = 20_000
MAX_PRODUCTS = 100_000_000  # windows x context x horizon, to choose with
MIN_WINDOWS = 4  # to fit to
MIN_DEVIATION = 0.1  # of the values of a window, when calm ones count more


class StartSeries(NamedTuple):
    """The training part of a series, scaled: `values` (T,), and inputs `known` in advance (T, k)."""

    values: Array
    known: NDArray[np.float32]


@dataclass(frozen=True)
class LinearStart:
    """A linear forecast: weights of the `level` (C,), the map from centred values (H, C), effects of inputs (k,)."""

    level: Array
    forecast: Array
    effects: Array


class _Sample(NamedTuple):
    """Windows: `contexts` (n, C), `targets` (n, H); where in its training part each has its origin and its end.

    `weights` (n, 1) are larger for calm windows. They are of the values before effects of inputs are taken off, so that
    errors with different effects compare.
    """

    contexts: Array
    targets: Array
    positions: Array
    ends: Array
    weights: Array

    def part(self, rows: NDArray[np.bool_]) -> "_Sample":
        return _Sample(*(array[rows] for array in self))

    def centred(self, span: int) -> tuple[Array, Array]:
        """Return contexts and targets less the mean of the last `span` values."""
        level = self.contexts[:, -span:].mean(axis=1, keepdims=True)
        return self.contexts - level, self.targets - level


def fit_start(series: Sequence[StartSeries], shape: WindowShape, seasons: Sequence[int]) -> LinearStart:
    """Find the linear forecast from the training parts of series.

    **Arguments:** `shape`: of the windows; `seasons`: steps after which patterns repeat; those beyond the context are
    left out.
    """
    seasons = [season for season in seasons if 1 < season <= shape.context]
    best = (np.inf, 1, _base_map(BASES[0], 1, shape), np.inf, np.zeros(shape.known))
    most = max(MAX_PRODUCTS // (shape.context * shape.horizon), 500)
    for effects in _effects(series, [0, 1, *seasons] if shape.known else []):
        sample = _sample(series, effects, shape, most)
        for span in (1, *seasons):
            error, base, strength = _choose(sample, span, shape, seasons)
            if error < best[0]:
                best = (error, span, base, strength, effects)
    _, span, base, strength, effects = best
    forecast = (
        base if np.isinf(strength) else _fitted(_sample(series, effects, shape, MAX_WINDOWS), span, base, strength)
    )
    level = np.zeros(shape.context)
    level[-span:] = 1 / span
    return LinearStart(level, forecast, effects)


def _effects(series: Sequence[StartSeries], lags: Sequence[int]) -> Iterator[Array]:
    """Yield candidates for the effects (k,) of inputs: none, and those on differences over each lag; 0 is the mean."""
    size = series[0].known.shape[1]
    yield np.zeros(size)
    for lag in dict.fromkeys(lags):
        pairs = [(_differences(each.values, lag), _differences(each.known, lag)) for each in series]
        inputs = np.concatenate([known for _, known in pairs]).astype(np.float64)
        if len(inputs) > 2 * size:
            gram = inputs.T @ inputs
            ridge = np.eye(size) * (1e-3 * np.trace(gram) / size + 1e-12)
            yield np.linalg.solve(gram + ridge, inputs.T @ np.concatenate([values for values, _ in pairs]))


def _differences(values: NDArray[np.floating], lag: int) -> NDArray[np.floating]:
    """Return the differences of values (T, ...) over a lag; from their mean, if it is 0."""
    return values[lag:] - values[:-lag] if lag else values - values.mean(axis=0)


def _sample(series: Sequence[StartSeries], effects: Array, shape: WindowShape, most: int) -> _Sample:
    """Return at most `most` windows, evenly spaced; a context that begins before its series repeats the first value."""
    counts = np.array([max(len(each.values) - shape.horizon - 1, 0) for each in series])
    chosen = np.unique(np.linspace(0, max(counts.sum() - 1, 0), min(most, int(counts.sum()))).astype(np.int64))
    first = np.cumsum(counts) - counts
    owners = np.searchsorted(np.cumsum(counts), chosen, side="right")
    parts: list[_Sample] = []
    for number in np.unique(owners).tolist():
        origins, count = chosen[owners == number] - first[number] + 1, counts[number]
        known_values, known = series[number]
        values = known_values - known @ effects
        before = np.maximum(origins[:, None] + np.arange(1 - shape.context, 1), 0)
        targets = values[origins[:, None] + np.arange(1, shape.horizon + 1)]
        weights = 1 / np.maximum(known_values[before].std(axis=1, keepdims=True), MIN_DEVIATION)
        parts.append(_Sample(values[before], targets, origins / count, (origins + shape.horizon) / count, weights))
    if not parts:
        sizes = (shape.context, shape.horizon, None, None, 1)
        return _Sample(*(np.empty(0 if size is None else (0, size)) for size in sizes))
    return _Sample(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _choose(sample: _Sample, span: int, shape: WindowShape, seasons: Sequence[int]) -> tuple[float, Array, float]:
    """Return the least error on later windows, the simple forecast (H, C) and the strength that have it."""
    bases = [_base_map(base, 1, shape) for base in BASES if base not in (SEASONAL, AVERAGE, GROWTH)]
    bases += [_base_map(base, season, shape) for season in seasons for base in (SEASONAL, AVERAGE, GROWTH)]
    errors = np.zeros((len(bases), len(STRENGTHS) + 1))
    for fold in FOLDS:
        early = sample.part(sample.ends < fold)
        late = sample.part((sample.positions >= fold) & (sample.positions < fold + FOLD))
        if len(late.positions):
            errors += _errors(early, late, span, bases)
    if not errors.any():
        return np.inf, bases[0], np.inf
    base, strength = np.unravel_index(int(errors.argmin()), errors.shape)
    return float(errors.min()), bases[int(base)], (np.inf, *STRENGTHS)[int(strength)]


def _errors(early: _Sample, late: _Sample, span: int, bases: Sequence[Array]) -> Array:
    """Return the errors on late windows of each simple forecast, as it is and fitted to the early ones."""
    contexts, targets = late.centred(span)
    fits = _Fits(early, span) if len(early.positions) >= MIN_WINDOWS else None
    errors = np.full((len(bases), len(STRENGTHS) + 1), np.inf)
    for row, base in enumerate(bases):
        errors[row, 0] = (np.abs(targets - contexts @ base.T) * late.weights).mean()
    for column, strength in enumerate(STRENGTHS if fits else (), start=1):
        for row, forecast in enumerate(fits.maps(bases, strength) if fits else ()):
            errors[row, column] = (np.abs(targets - contexts @ forecast.T) * late.weights).mean()
    return errors


class _Fits:
    """Ridge regressions on the same windows."""

    def __init__(self, sample: _Sample, span: int) -> None:
        contexts, targets = (array * sample.weights for array in sample.centred(span))
        self._gram, self._products = contexts.T @ contexts, contexts.T @ targets
        self._variance = np.trace(self._gram) / len(self._gram) + 1e-12

    def maps(self, bases: Sequence[Array], strength: float) -> list[Array]:
        """Return the map (H, C) that fits best, near each simple forecast (H, C)."""
        ridge = self._gram + strength * self._variance * np.eye(len(self._gram))
        best, kept = np.split(
            np.linalg.solve(ridge, np.hstack([self._products, self._gram])), [self._products.shape[1]], 1
        )
        return [base + best.T - base @ kept.T for base in bases]


def _fitted(sample: _Sample, span: int, base: Array, strength: float) -> Array:
    return _Fits(sample, span).maps([base], strength)[0]


def _base_map(base: str, season: int, shape: WindowShape) -> Array:
    """Return a simple forecast as a map (H, C) from the values of a window."""
    context = shape.context
    ends = np.arange(1, context + 1) * context - 1
    probes = simple_forecasts(base, np.eye(context).ravel(), ends, ends + 1 - context, shape.horizon, season)
    return probes.T
