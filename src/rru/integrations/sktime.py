"""sktime estimators: a forecaster of one or many series, and a classifier of series.

```
from rru.integrations.sktime import RRUForecaster

forecaster = RRUForecaster(random_state=0).fit(y, fh=range(1, 13))
forecaster.predict(), forecaster.predict_interval(coverage=0.9)
```
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rru.extras import extra
from rru.inference import Trained
from rru.integrations.series import Panel, SeriesData, at_levels, fit_series, horizon_of, inputs_of, quantiles_of
from rru.integrations.sklearn import MAX_SEED, RRUClassifier

with extra("sktime"):
    import pandas as pd
    from sktime.classification.base import BaseClassifier
    from sktime.datatypes import update_data
    from sktime.forecasting.base import BaseForecaster, ForecastingHorizon

TABLES = ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"]
FREQUENCY = re.compile(r"(\d*)(?:B(?=[MQY]))?(us|s|min|h|D|B|W|M|Q|Y)[ES]?(?:-[A-Z]+)?")
"""pandas' names of what a step is: how many units, and the unit as rru names it."""


class RRUForecaster(BaseForecaster):  # type: ignore[misc]
    """Forecast series with one model for all of them, as `rru train` does: medians, intervals and quantiles.

    A panel is learnt by one model. `pretrain(panel, fh=...)` lets `fit` go on from that model with other series, which
    are not trained on. X must be known in advance for the steps to forecast.

    **Arguments:**

    - `cell`: `rru`, `gru`, `lstm` or `mogrifier`.
    - `sp`: steps after which a pattern repeats. Default: by the frequency of the index, else found in the values.
    - `settings`: settings of model and training by name, as for `rru.fit`.
    - `random_state`: random seed. Default: drawn from numpy's generator.

    >>> from sktime.datasets import load_airline
    >>> forecaster = RRUForecaster(random_state=0).fit(load_airline(), fh=[1, 2, 3])  # doctest: +SKIP
    >>> forecaster.predict_interval(coverage=0.9)  # doctest: +SKIP
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["the rru authors"],
        "python_dependencies": ["torch"],
        "y_inner_mtype": TABLES,
        "X_inner_mtype": TABLES,
        "capability:multivariate": False,
        "capability:exogenous": True,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:missing_values": True,
        "capability:non_contiguous_X": False,
        "capability:update": True,
        "capability:pretrain": True,
        "capability:categorical_in_X": False,
        "capability:random_state": True,
        "property:randomness": "derandomized",
        "pretrain:fitted_params": ["pretrained_"],
        "requires-fh-in-fit": True,
    }

    def __init__(
        self,
        cell: str = "rru",
        sp: int | None = None,
        settings: Mapping[str, object] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.cell = cell
        self.sp = sp
        self.settings = settings
        self.random_state = random_state
        super().__init__()

    def _pretrain(self, y: pd.DataFrame, X: pd.DataFrame | None = None, fh: Any = None) -> RRUForecaster:
        if fh is None:
            raise ValueError("RRUForecaster.pretrain needs fh, the steps to forecast, such as fh=[1, 2, 3]")
        self.pretrained_ = self._trained(y, X, _last_step(fh))
        return self

    def _pretrain_update(self, y: pd.DataFrame, X: pd.DataFrame | None = None, fh: Any = None) -> RRUForecaster:
        horizon = horizon_of(self.pretrained_) if fh is None else _last_step(fh)
        self.pretrained_ = self._trained(y, X, int(horizon))
        return self

    def _fit(self, y: pd.DataFrame, X: pd.DataFrame | None, fh: ForecastingHorizon) -> RRUForecaster:
        self._history_y, self._history_X, fh = y, X, _with_freq(fh, y)
        self._horizon = max(int(max(fh.to_relative(self.cutoff))), 1)
        if not hasattr(self, "pretrained_"):
            self.model_ = self._trained(y, X, self._horizon)
        elif (given := 0 if X is None else X.shape[1]) != (pretrained := inputs_of(self.pretrained_)):
            raise ValueError(f"X must have as many columns as in pretrain: {pretrained}, got {given}")
        return self

    def _update(self, y: pd.DataFrame, X: pd.DataFrame | None = None, update_params: bool = True) -> RRUForecaster:
        self._history_y = update_data(self._history_y, y)
        self._history_X = None if self._history_X is None else update_data(self._history_X, X)
        if update_params and not hasattr(self, "pretrained_"):
            self.model_ = self._trained(self._history_y, self._history_X, self._horizon)
        return self

    def _predict(self, fh: ForecastingHorizon, X: pd.DataFrame | None) -> pd.DataFrame:
        forecasts = self._forecasts(fh, X, [0.5])
        forecasts.columns = self._history_y.columns
        return forecasts

    def _predict_quantiles(self, fh: ForecastingHorizon, X: pd.DataFrame | None, alpha: list[float]) -> pd.DataFrame:
        forecasts = self._forecasts(fh, X, alpha)
        forecasts.columns = pd.MultiIndex.from_product([self._get_varnames(), alpha])
        return forecasts

    def _trained(self, y: pd.DataFrame, X: pd.DataFrame | None, horizon: int) -> Trained:
        seed = np.random.mtrand.randint(MAX_SEED) if self.random_state is None else int(self.random_state)
        return fit_series(
            _panel(y, X),
            horizon,
            cell=self.cell,
            frequency=_frequency(y),
            season=self.sp,
            settings=self.settings or {},
            seed=int(seed),
        )

    def _forecasts(self, fh: ForecastingHorizon, X: pd.DataFrame | None, levels: list[float]) -> pd.DataFrame:
        """Return the quantiles at these levels, a row for each series and step of `fh`."""
        y, known, fh = self._history_y, self._history_X, _with_freq(fh, self._history_y)
        if known is not None:
            if X is None:
                raise ValueError("X must be given for the steps to forecast, as it was in fit")
            known = update_data(known, X)
        trained = self.pretrained_ if hasattr(self, "pretrained_") else self.model_
        panel, ahead = _panel(y, known), np.asarray(fh.to_relative(self.cutoff).to_pandas(), np.int64)
        cutoff = max(each.end for each in panel.values())
        steps = {name: cutoff - each.end + int(ahead.max()) for name, each in panel.items()}
        quantiles = quantiles_of(trained, panel, steps)
        times = fh.to_absolute_index(self.cutoff)
        rows = {name: at_levels(quantiles[name][cutoff - panel[name].end + ahead - 1], levels) for name in panel}
        if not isinstance(y.index, pd.MultiIndex):
            return pd.DataFrame(rows["0"], index=times)
        instances = y.index.droplevel(-1).unique()
        names = instances if isinstance(instances, pd.MultiIndex) else [(each,) for each in instances]
        index = pd.MultiIndex.from_tuples([(*name, time) for name in names for time in times], names=y.index.names)
        return pd.DataFrame(np.concatenate([rows[str(number)] for number in range(len(instances))]), index=index)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return settings that train within a second, for sktime's checks."""
        quick = {"epochs": 1, "refit": False, "limit": 16, "budget": 3000}
        return [{"settings": quick, "random_state": 0}, {"cell": "gru", "sp": 2, "settings": quick, "random_state": 1}]


class RRUSeriesClassifier(BaseClassifier):  # type: ignore[misc]
    """Classify series; they may have several channels and differ in length.

    **Arguments:** `cell`: `rru`, `gru`, `lstm` or `mogrifier`; `settings`: settings of model and training by name, as
    for `rru.fit`; `random_state`: random seed.

    >>> from sktime.datasets import load_basic_motions
    >>> X, y = load_basic_motions("train", return_X_y=True)
    >>> classifier = RRUSeriesClassifier(random_state=0).fit(X, y)  # doctest: +SKIP
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["the rru authors"],
        "python_dependencies": ["torch"],
        "X_inner_mtype": "df-list",
        "capability:multivariate": True,
        "capability:unequal_length": True,
        "capability:missing_values": True,
        "capability:predict_proba": True,
        "capability:random_state": True,
        "property:randomness": "derandomized",
    }

    def __init__(
        self,
        cell: str = "rru",
        settings: Mapping[str, object] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.cell = cell
        self.settings = settings
        self.random_state = random_state
        super().__init__()

    def _fit(self, X: list[pd.DataFrame], y: NDArray[Any]) -> RRUSeriesClassifier:
        self.classifier_ = RRUClassifier(self.cell, settings=self.settings, random_state=self.random_state)
        self.classifier_.fit(X, y)
        return self

    def _predict(self, X: list[pd.DataFrame]) -> NDArray[Any]:
        return np.asarray(self.classifier_.predict(X))

    def _predict_proba(self, X: list[pd.DataFrame]) -> NDArray[np.float64]:
        return np.asarray(self.classifier_.predict_proba(X))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return settings that train within a second, for sktime's checks."""
        return [{"settings": {"epochs": 2}, "random_state": 0}, {"cell": "gru", "settings": {"epochs": 1}}]


def _last_step(fh: Any) -> int:
    """Return the last step of a horizon, which must be relative."""
    return int(max(fh if isinstance(fh, ForecastingHorizon) else ForecastingHorizon(fh, is_relative=True)))


def _with_freq(fh: ForecastingHorizon, y: pd.DataFrame) -> ForecastingHorizon:
    """Return a horizon that knows the length of its steps, which sktime does not find in panels with dates."""
    freq = _freq(y.index)
    if fh.freq is None and freq is not None:
        fh = copy(fh)
        fh.freq = freq
    return fh


def _panel(y: pd.DataFrame, X: pd.DataFrame | None) -> Panel:
    """Return the series of a table by their number, as text, in order."""
    freq = _freq(y.index)
    if not isinstance(y.index, pd.MultiIndex):
        return {"0": _series(y, X, freq=freq)}
    levels = list(range(y.index.nlevels - 1))
    panel = dict[str, SeriesData]()
    for number, instance in enumerate(y.index.droplevel(-1).unique()):
        key = instance if isinstance(instance, tuple) else (instance,)
        own = (table if table is None else table.xs(key, level=levels) for table in (y, X))
        panel[str(number)] = _series(*own, freq=freq)
    return panel


def _series(y: pd.DataFrame, X: pd.DataFrame | None = None, *, freq: Any) -> SeriesData:
    freq = _freq(y.index) or freq
    steps, values = _positions(y.index, freq), y.iloc[:, 0].to_numpy(np.float64)
    if X is None:
        return SeriesData(steps, values, np.zeros(0, np.int64), np.zeros((0, 0)))
    return SeriesData(steps, values, _positions(X.index, freq), X.to_numpy(np.float64))


def _freq(index: pd.Index) -> Any:
    """Return what pandas calls a step of an index, or of that of a panel; None if it cannot tell."""
    times = index.get_level_values(-1).unique().sort_values() if isinstance(index, pd.MultiIndex) else index
    infers = isinstance(times, pd.DatetimeIndex) and len(times) > 2
    return getattr(times, "freq", None) or (pd.infer_freq(times) if infers else None)


def _positions(index: pd.Index, freq: Any) -> NDArray[np.int64]:
    """Return the integers that count the steps of an index."""
    if isinstance(index, pd.PeriodIndex):
        return np.asarray(index.asi8 // index.freq.n, np.int64)
    if isinstance(index, pd.DatetimeIndex):
        if freq is None:
            raise ValueError("the index must have a frequency: set one with y.asfreq, such as y.asfreq('D')")
        match = FREQUENCY.fullmatch(_name(freq))
        if match is None:
            raise ValueError(f"steps of {_name(freq)} cannot be counted: use a PeriodIndex, or integers")
        count, unit = int(match[1] or 1), match[2]
        if unit == "B":
            return np.asarray(np.busday_count("1970-01-01", index.to_numpy("datetime64[D]")) // count, np.int64)
        return np.asarray(index.to_period(unit).asi8 // count, np.int64)
    return np.asarray(index, np.int64)


def _frequency(y: pd.DataFrame) -> str | None:
    """Return rru's name for what a step is; None if the index does not say."""
    match = FREQUENCY.fullmatch(_name(_freq(y.index)))
    return match[1] + match[2] if match else None


def _name(freq: Any) -> str:
    return str(getattr(freq, "freqstr", freq))
