"""Windows over series: what a forecasting model reads, and how its output becomes a forecast."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rru.data.own.data_json import SeriesFacts
from rru.data.own.scaling import Scaling, restored, simple_forecasts, transformed

STEP_FEATURES = 2
"""Features of each step before the inputs: the value, and whether it is known."""
Places = NDArray[np.int64]


class SeriesPart(NamedTuple):
    """One series.

    **Arguments:**

    - `values`, `observed`: (T,), see `rru.data.Series`.
    - `inputs`: (T or more, k), standardized.
    - `scaling`: how its values are scaled.
    - `number`: its place among the series that the model was trained on; -1 if it was not.
    """

    values: NDArray[np.float64]
    observed: NDArray[np.bool_]
    inputs: NDArray[np.float32]
    scaling: Scaling
    number: int = -1


class Windows:
    """Windows of `context` known steps and `horizon` steps to forecast.

    A window is named by its series and by its origin, the last known step of that series.

    **Arguments:**

    - `series`: the series.
    - `facts`: their layout, horizon and season.
    - `context`: steps.
    """

    skip = 0
    """The number of leading outputs of the model that are no forecasts."""

    def __init__(self, series: Sequence[SeriesPart], facts: SeriesFacts, context: int) -> None:
        self.context, self.horizon, self.season = context, facts.horizon, facts.season
        self.past_size = facts.layout.past_size
        self.scalings = tuple(each.scaling for each in series)
        self.numbers = np.array([each.number for each in series])
        self.values = np.concatenate([each.values for each in series])
        self.observed = np.concatenate([each.observed for each in series])
        self.inputs = np.concatenate([each.inputs for each in series])
        self.starts = _starts([each.values for each in series])
        self.input_starts = _starts([each.inputs for each in series])
        self._transformed = np.concatenate([transformed(each.values, each.scaling.floor) for each in series])
        names = ("centre", "deviation", "spread", "unit", "naive")
        self._numbers = {name: np.array([getattr(each, name) for each in self.scalings]) for name in names}
        self._steps = np.arange(1 - context, facts.horizon + 1)  # relative to the last known step

    def scale(self, name: str, series: Places) -> NDArray[np.float64]:
        """Return a number of the scaling of each series (B,), as (B, 1)."""
        return self._numbers[name][series][:, None]

    def simple(self, base: str, series: Places, origins: Places) -> NDArray[np.float64]:
        """Return a simple forecast (B, H) in the units of the file."""
        return simple_forecasts(base, self.values, *self._at(series, origins), self.horizon, self.season)

    def features(self, series: Places, origins: Places) -> NDArray[np.float32]:
        """Return the features (context + horizon, B, m) of windows; steps before the series repeat its first."""
        last, starts = self._at(series, origins)
        steps = last[:, None] + self._steps
        places = np.clip(steps, starts[:, None], last[:, None])  # (B, T + H)
        known = (steps >= starts[:, None]) & (self._steps <= 0) & self.observed[places]
        values = np.where(self._steps > 0, 0.0, self.scaled(places, series))
        features = np.stack([values, known], axis=-1).astype(np.float32)
        return np.concatenate([features, self._inputs(series, origins)], axis=-1).transpose(1, 0, 2)

    def targets(self, series: Places, origins: Places) -> NDArray[np.float32]:
        """Return the scaled values (H, B) that are to be forecast; NaN where not known."""
        places = self.steps_ahead(series, origins)
        return np.where(self.observed[places], self.scaled(places, series), np.nan).T.astype(np.float32)

    def forecasts(self, series: Places, origins: Places, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return forecasts (H, B, Q) in the units of the file, from the outputs (H, B, Q) of the model."""
        values = outputs * self._numbers["unit"][series][:, None] + self._numbers["centre"][series][:, None]
        return self._restored(series, values)

    def actual(self, series: Places, origins: Places) -> NDArray[np.float64]:
        """Return the values (B, H) to be forecast, in the units of the file; NaN where not known."""
        places = self.steps_ahead(series, origins)
        return np.where(self.observed[places], self.values[places], np.nan)

    def steps_ahead(self, series: Places, origins: Places) -> Places:
        """Return the places (B, H) in `values` that are to be forecast."""
        return (self.starts[series] + origins)[:, None] + np.arange(1, self.horizon + 1)

    def _at(self, series: Places, origins: Places) -> tuple[Places, Places]:
        return self.starts[series] + origins, self.starts[series]

    def scaled(self, places: Places, series: Places) -> NDArray[np.float64]:
        """Return the values at places (B, ...) of series (B,), as the model sees them."""
        centred: NDArray[np.float64] = self._transformed[places] - self.scale("centre", series)
        return centred / self.scale("unit", series)

    def _restored(self, series: Places, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return transformed values (H, B, Q) of series (B,) in the units of the file, none below the least."""
        for number in np.unique(series).tolist():
            scaling, here = self.scalings[number], series == number
            least = -np.inf if scaling.least is None else scaling.least
            values[:, here] = np.maximum(restored(values[:, here], scaling.floor), least)
        return values

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
