"""Windows over series: what a forecasting model reads, and how its output becomes a forecast."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rru.data.own.data_json import SeriesFacts
from rru.data.own.scaling import Scaling, recent_mean, restored, simple_forecasts, transformed

SERIES_FEATURES = 6
"""Features of each step besides the inputs: value, change since the season before, whether it is known, whether it is
to be forecast, how far ahead it is, and the level of the window."""
MAX_FEATURE = 20.0
Places = NDArray[np.int64]


class SeriesPart(NamedTuple):
    """One series: `values` and `observed` (T,), see `rru.data.Series`; `inputs` (T or more, k), standardized."""

    values: NDArray[np.float64]
    observed: NDArray[np.bool_]
    inputs: NDArray[np.float32]
    scaling: Scaling


class Windows:
    """Windows of `context` known steps and `horizon` steps to forecast.

    **Arguments:**

    - `series`: the series.
    - `facts`: their layout, horizon, season, and the simple forecast that the model starts from.
    - `context`: steps.
    """

    def __init__(self, series: Sequence[SeriesPart], facts: SeriesFacts, context: int) -> None:
        self.context, self.horizon, self.season, self.base = context, facts.horizon, facts.season, facts.base
        self.past_size = facts.layout.past_size
        self.scalings = tuple(each.scaling for each in series)
        self.values = np.concatenate([each.values for each in series])
        self.observed = np.concatenate([each.observed for each in series])
        self.inputs = np.concatenate([each.inputs for each in series])
        self.starts = _starts([each.values for each in series])
        self.input_starts = _starts([each.inputs for each in series])
        self._scaled = np.concatenate([transformed(each.values, each.scaling.floor) for each in series])
        names = ("centre", "deviation", "spread", "unit", "naive")
        self._numbers = {name: np.array([getattr(each, name) for each in self.scalings]) for name in names}
        self._steps = np.arange(1 - context, facts.horizon + 1)  # relative to the last known step

    def scale(self, name: str, series: Places) -> NDArray[np.float64]:
        """Return a number of the scaling of each series (B,), as (B, 1)."""
        return self._numbers[name][series][:, None]

    def simple(self, base: str, series: Places, origins: Places) -> NDArray[np.float64]:
        """Return a simple forecast (B, H) in the units of the file. `origins` (B,) are the last known steps."""
        return simple_forecasts(base, self.values, *self._at(series, origins), self.horizon, self.season)

    def features(self, series: Places, origins: Places) -> NDArray[np.float32]:
        """Return the features (context + horizon, B, m) of windows; steps before the series repeat its first."""
        last, starts = self._at(series, origins)
        places = np.clip(last[:, None] + self._steps, starts[:, None], last[:, None])  # (B, T + H)
        ahead = self._steps > 0
        there = (last[:, None] + self._steps >= starts[:, None]) & ~ahead
        centre = recent_mean(self._scaled, last, starts, self.season)[:, None]
        values = self._scaled[places]
        values[:, ahead] = self._start(last, starts)
        before = np.maximum(places - self.season, starts[:, None])
        parts = [
            (values - centre) / self.scale("spread", series),
            np.where(there, self._scaled[places] - self._scaled[before], 0) / self.scale("unit", series),
            there & self.observed[places],
            np.broadcast_to(ahead, places.shape),
            np.broadcast_to(np.maximum(self._steps, 0) / self.horizon, places.shape),
            np.tanh((centre - self.scale("centre", series)) / self.scale("deviation", series)) + np.zeros(places.shape),
        ]
        features = np.clip(np.stack(parts, axis=-1).astype(np.float32), -MAX_FEATURE, MAX_FEATURE)
        return np.concatenate([features, self._inputs(series, origins)], axis=-1).transpose(1, 0, 2)

    def targets(self, series: Places, origins: Places) -> NDArray[np.float32]:
        """Return what the model is to output, (H, B): the difference to its simple forecast; NaN where not known."""
        last, starts = self._at(series, origins)
        places = self.steps_ahead(series, origins)
        distance = (self._scaled[places] - self._start(last, starts)) / self.scale("unit", series)
        return np.where(self.observed[places], distance, np.nan).T.astype(np.float32)

    def forecasts(self, series: Places, origins: Places, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return forecasts (H, B, Q) in the units of the file, from the outputs (H, B, Q) of the model."""
        start = self._start(*self._at(series, origins))
        scaled = outputs * self._numbers["unit"][series][:, None] + start.T[..., None]
        for number in np.unique(series).tolist():
            scaled[:, series == number] = restored(scaled[:, series == number], self.scalings[number].floor)
        return np.asarray(scaled)

    def actual(self, series: Places, origins: Places) -> NDArray[np.float64]:
        """Return the values (B, H) to be forecast, in the units of the file; NaN where not known."""
        places = self.steps_ahead(series, origins)
        return np.where(self.observed[places], self.values[places], np.nan)

    def steps_ahead(self, series: Places, origins: Places) -> Places:
        """Return the places (B, H) in `values` that are to be forecast."""
        return (self.starts[series] + origins)[:, None] + np.arange(1, self.horizon + 1)

    def _at(self, series: Places, origins: Places) -> tuple[Places, Places]:
        return self.starts[series] + origins, self.starts[series]

    def _start(self, last: Places, starts: Places) -> NDArray[np.float64]:
        """Return the forecast that the model starts from, (B, H), scaled."""
        return simple_forecasts(self.base, self._scaled, last, starts, self.horizon, self.season)

    def _inputs(self, series: Places, origins: Places) -> NDArray[np.float32]:
        """Return the inputs (B, T + H, k); those not known in advance are 0 after the last known step."""
        if not self.inputs.shape[1]:
            return np.empty((len(series), len(self._steps), 0), np.float32)
        rows = np.maximum(origins[:, None] + self._steps, 0)
        if self.past_size == self.inputs.shape[1]:
            rows = np.minimum(rows, origins[:, None])
        inputs = self.inputs[self.input_starts[series][:, None] + rows]
        inputs[:, self._steps > 0, : self.past_size] = 0
        return np.asarray(inputs)


def _starts(parts: Sequence[NDArray[np.generic]]) -> Places:
    return np.cumsum([0, *map(len, parts)])[:-1].astype(np.int64)
