"""Backtest a forecasting model: forecast from origins in the past, and compare with what came true."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own.data_json import SeriesFacts
from rru.data.own.scaling import LAST, SEASONAL
from rru.data.spelling import option
from rru.inference import classical
from rru.inference.backtest_scores import Backtest, Window
from rru.inference.forecasting import check_window, quantiles_of
from rru.inference.held_out import Ground, Unseen, ground_of
from rru.kinds.sources import Source
from rru.tasks import SeriesPart, StepwiseWindows, Windows
from rru.training.denormals import denormals_flushed

if TYPE_CHECKING:
    from rru.inference.trained import Trained

MAX_FORECASTS = 1_000_000  # windows
CELLS = {"rru": "RRU", "gru": "GRU", "lstm": "LSTM", "mogrifier": "Mogrifier LSTM"}
LAST_VALUE, SEASONAL_NAIVE, DRIFT = "last value", "seasonal naive", "drift"


def backtest(
    trained: Trained,
    data: Source = None,
    *,
    horizon: int | None = None,
    origins: int | None = None,
    stride: int | None = None,
) -> Backtest:
    """Forecast from the last origins of each series, without training again, and compare with what came true.

    Only steps that the weights have not seen are forecast. Without `data` these are the test part of the run's file,
    with the weights of the best epoch, also if the run has others that were trained on all data. With `data` they are
    what comes after the end of the run's own data. The other methods forecast the same steps: last value, seasonal
    naive, drift, and AutoETS and AutoTheta if the package `statsforecast` is installed.

    **Arguments:**

    - `trained`: a model trained on series.
    - `data`: a table, as for `forecast`.
    - `horizon`: steps of each forecast; at most, and by default, as many as in training.
    - `origins`: how many forecasts of each series, or as many as it has room for. Default: as many as do not overlap.
    - `stride`: steps from one origin to the next. Default: the horizon.
    """
    trained.check_command("backtest")
    facts = trained.facts
    assert isinstance(facts, SeriesFacts)  # of every model of series
    horizon = facts.horizon if horizon is None else horizon
    stride = horizon if stride is None else stride
    if not 1 <= horizon <= facts.horizon:
        raise ValueError(f"horizon must be from 1 to {facts.horizon}, as in training; got {horizon}")
    for name, value in (("origins", origins), ("stride", stride)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    check_window(trained, facts)
    ground = ground_of(trained, data, horizon)
    places = _places(ground, horizon, origins, stride)
    with denormals_flushed():  # as in training
        return _compared(trained, facts, ground, places, horizon)


def _places(ground: Ground, horizon: int, origins: int | None, stride: int) -> NDArray[np.int64]:
    """Return the series and origins (W, 2) to forecast from; raise if there are none, or fewer than are wanted."""
    most, chosen = 0, list[NDArray[np.int64]]()
    for number, each in enumerate(ground.series):
        last = len(each.values) - 1 - horizon
        room = (last - each.first) // stride + 1 if last >= each.first else 0
        most = max(most, room)
        wanted = max((each.held - horizon) // stride + 1, 1) if origins is None else origins
        found = last - stride * np.arange(min(room, wanted))[::-1]
        known = np.concatenate([[0], np.cumsum(each.observed)])
        found = found[known[found + horizon + 1] > known[found + 1]]
        chosen.append(np.stack([np.full(len(found), number), found], axis=1))
    if not most:
        raise _too_short(ground, horizon)
    if origins is not None and origins > most:
        reason = f"{ground.data} has no more steps that the weights have not seen, with a stride of {stride}"
        raise ValueError(f"origins must be at most {most}, got {origins}: {reason}")
    places = np.concatenate(chosen)
    if not 0 < len(places) <= MAX_FORECASTS:
        advice = f"give {option('origins')} or a larger {option('stride')}" if len(places) else "has no known values"
        raise ValueError(f"{ground.data} has {len(places):,} forecasts, must have 1 to {MAX_FORECASTS:,}; {advice}")
    return places


def _too_short(ground: Ground, horizon: int) -> DataError:
    """Return the error if no series has a horizon of steps to test on."""
    longest = max(ground.series, key=lambda each: len(each.values) - 1 - each.first)
    steps = len(longest.values) - 1 - longest.first
    which = f"series {longest.name!r} has" if longest.name else "has"
    advice = f"; {option('horizon')} must be at most {steps}" if steps > 0 else ""
    return DataError(ground.data, f"{which} {steps} steps to test on, fewer than the horizon of {horizon}{advice}")


def _compared(
    trained: Trained, facts: SeriesFacts, ground: Ground, places: NDArray[np.int64], horizon: int
) -> Backtest:
    """Forecast from places (W, 2) with every method."""
    firsts = {int(number): int(places[places[:, 0] == number, 1].min()) for number in np.unique(places[:, 0])}
    used = [ground.series[number] for number in firsts]
    parts = [_part(each, facts, first) for each, first in zip(used, firsts.values(), strict=True)]
    places = np.stack([np.searchsorted(list(firsts), places[:, 0]), places[:, 1]], axis=1)
    windows = (StepwiseWindows if facts.base else Windows)(parts, facts, trained.config.task.context)
    steps = windows.steps_ahead(*places.T)[:, :horizon]  # (W, horizon)
    actual = np.where(windows.observed[steps], windows.values[steps], np.nan)
    found = [
        _window(used[series], origin, actual[number], parts[series].scaling.naive)
        for number, (series, origin) in enumerate(places.tolist())
    ]
    name = CELLS.get(trained.config.model.cell, trained.config.model.cell)
    quantiles = quantiles_of(trained, ground.model, windows, places)[:, :horizon]
    simple = {LAST_VALUE: windows.simple(LAST, *places.T)[:, :horizon]}
    if facts.season > 1:
        simple[SEASONAL_NAIVE] = windows.simple(SEASONAL, *places.T)[:, :horizon]
    simple[DRIFT] = _drift(windows, places, horizon)
    histories = [used[series].values[: origin + 1] for series, origin in places.tolist()]
    fitted, notes = classical.forecasts(histories, horizon, facts.season)
    left = len(ground.series) - len(used)
    notes = [f"{left:,} series are too short to be tested"] * bool(left) + notes
    context, shortest = trained.config.task.context, int(places[:, 1].min()) + 1
    if shortest < context:
        notes.append(f"the shortest history has {shortest:,} steps, the model reads {context:,}: expect larger errors")
    forecasts = {name: quantiles, **simple, **fitted}
    target = facts.layout.target
    return Backtest(target, ground.data, ground.weights, found, forecasts, (*ground.notes, *notes))


def _part(each: Unseen, facts: SeriesFacts, first: int) -> SeriesPart:
    """Return a series as windows need it; a new one is scaled by its values up to its first origin."""
    inputs = np.concatenate([each.inputs, np.repeat(each.inputs[-1:], facts.horizon, axis=0)])  # only if shortened
    scaling = facts.scaling(each.name, each.values[: first + 1], each.observed[: first + 1])
    return SeriesPart(each.values, each.observed, inputs, scaling, facts.number(each.name))


def _window(each: Unseen, origin: int, actual: NDArray[np.float64], naive: float) -> Window:
    return Window(each.name, origin, each.times(origin, origin + 1 + len(actual)), actual, naive)


def _drift(windows: Windows, places: NDArray[np.int64], horizon: int) -> NDArray[np.float64]:
    """Return forecasts (W, horizon) on the line from the first value of a series to its last known one."""
    series, origins = places.T
    first, last = windows.values[windows.starts[series]], windows.values[windows.starts[series] + origins]
    slope = (last - first) / np.maximum(origins, 1)
    return np.asarray(last[:, None] + slope[:, None] * np.arange(1, horizon + 1))
