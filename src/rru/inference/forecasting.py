"""Forecast series with a trained model."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own.columns import Layout
from rru.data.own.data_json import MAX_WINDOW, SeriesFacts
from rru.data.own.frames import is_frame, table_from
from rru.data.own.resampling import RegularSeries, read_series
from rru.data.own.source import check_place
from rru.data.own.table import Table
from rru.data.own.times import Whens
from rru.data.spelling import flag, option
from rru.inference import notebook
from rru.inference.fans import picture
from rru.inference.output import check_free, write_files
from rru.kinds.sources import Source
from rru.tasks import QUANTILES, Forecaster, Recurrent, SeriesPart, StepwiseWindows, Windows
from rru.training import RunError

if TYPE_CHECKING:
    from rru.inference.trained import Trained

BATCH = 256  # windows at once
SHOWN = 5  # steps
HEAD = ("forecast", "low_80", "high_80", "low_95", "high_95")
ORDER = (2, 1, 3, 0, 4)  # of the quantiles in HEAD


@dataclass(frozen=True, repr=False, eq=False)
class Forecast:
    """The forecast of one series.

    **Arguments:**

    - `name`: its id; empty if there is only one.
    - `target`: the column that is forecast.
    - `history`: (T,), the values before, NaN where missing.
    - `quantiles`: (horizon, 5): see `rru.tasks.QUANTILES`.
    - `times`: (T + horizon,), of both: times, or integers that count steps; None if the series has neither.
    """

    name: str
    target: str
    history: NDArray[np.float64]
    quantiles: NDArray[np.float64]
    times: Whens | None

    def __repr__(self) -> str:
        of, median = f" of {self.name}" if self.name else "", self.quantiles[:, ORDER[0]]
        shown = ", ".join(f"{value:.4g}" for value in median[:SHOWN])
        return f"<Forecast{of}, {self.target!r}, {len(median)} steps: {shown}{', ...' if len(median) > SHOWN else ''}>"

    def shortened(self, horizon: int | None) -> Forecast:
        """Return the forecast of the first `horizon` steps; of all if it is None."""
        if horizon is None:
            return self
        times = None if self.times is None else self.times[: len(self.history) + horizon]
        return replace(self, quantiles=self.quantiles[:horizon], times=times)


class Forecasts(list[Forecast]):
    """The forecasts of series. Notebooks show a picture of the first ones."""

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return a table, as a dict of arrays: series (if there are several), time or step, median and intervals.

        Steps are the integers that follow those in the data; where it has none, rows are counted from 0.
        """
        times = self[0].times
        several, timed = len(self) > 1 or bool(self[0].name), times is not None and times.dtype.kind == "M"
        names = [*(["series"] if several else []), "time" if timed else "step", *HEAD]
        rows: list[list[Any]] = []
        for each in self:
            whens = np.arange(len(each.history) + len(each.quantiles)) if each.times is None else each.times
            for when, values in zip(whens[len(each.history) :], each.quantiles[:, ORDER].tolist(), strict=True):
                rows.append([*([each.name] if several else []), when, *values])
        return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}

    def save(self, path: Path | str, *, force: bool = False) -> tuple[Path, Path]:
        """Write the table to a CSV file, and a picture next to it; return both. `force` overwrites files."""
        files = places(Path(path), force=force)
        write_forecasts(self, files)
        return files

    def _repr_html_(self) -> str:
        return notebook.image(picture(self))


def forecast(trained: Trained, data: Source = None, horizon: int | None = None) -> Forecasts:
    """Forecast the steps after the end of each series in a table.

    **Arguments:**

    - `trained`: a model trained on series.
    - `data`: a table with the same columns as the one it was trained on: a file, a DataFrame or a dict of columns; or
      the values of one series, if the target is its only column. Columns that are known in advance must go on for as
      many steps as are forecast, in rows without the target. Default: the file that it was trained on.
    - `horizon`: the number of steps; at most, and by default, as many as in training.
    """
    trained.check_command("forecast")
    facts = trained.facts
    assert trained.config.data is not None and isinstance(facts, SeriesFacts)  # noqa: PT018 (of every model of series)
    trained_on = trained.config.data.path
    if data is None and not trained_on.exists():
        raise DataError(trained_on, f"is gone; give {option('data')}, a table with the series to go on from")
    if horizon is not None and not 1 <= horizon <= facts.horizon:
        raise ValueError(f"horizon must be from 1 to {facts.horizon}, as in training; got {horizon}")
    data = trained_on if data is None else data
    check_window(trained, facts)
    table = table_of(data, facts.layout)
    read = read_series(table, facts.layout, facts.filling_season)
    all_series = [series.with_future(facts.horizon, table.path) for series in read.values()]
    return Forecasts(each.shortened(horizon) for each in _forecast(trained, all_series, facts))


def check_window(trained: Trained, facts: SeriesFacts) -> None:
    """Raise RunError if the windows of a model are too long to be computed."""
    window = trained.config.task.context + facts.horizon
    if window > MAX_WINDOW:
        raise RunError(f"{trained.path}: context and horizon must be at most {MAX_WINDOW} steps, are {window}")


def table_of(data: Source, layout: Layout) -> Table:
    """Read the table that a user gives; values without names are those of the target."""
    if isinstance(data, Path | str):
        path = Path(data).expanduser()
        check_place(path)
        return table_from(path)
    if hasattr(data, "to_frame") and not is_frame(data):  # a Series of pandas or polars
        data = data.to_frame(layout.target)
    if not is_frame(data):
        data = {layout.target: data}
    return table_from(data, index=layout.time or "time")


def _forecast(trained: Trained, all_series: Sequence[RegularSeries], facts: SeriesFacts) -> list[Forecast]:
    layout = facts.layout
    parts = [
        SeriesPart(
            series.values,
            series.observed,
            layout.standardized(series.inputs),
            facts.scaling(series.name, series.values, series.observed),
            facts.number(series.name),
        )
        for series in all_series
    ]
    window_class = StepwiseWindows if facts.base else Windows  # models of version 0.2 start from a simple forecast
    windows = window_class(parts, facts, trained.config.task.context)
    places = np.array([(number, len(series.values) - 1) for number, series in enumerate(all_series)])
    quantiles = quantiles_of(trained, trained.model, windows, places)
    history = [np.where(series.observed, series.values, np.nan) for series in all_series]
    times = [series.times(0, len(series.values) + windows.horizon) for series in all_series]
    return [
        Forecast(series.name, layout.target, history[number], quantiles[number], times[number])
        for number, series in enumerate(all_series)
    ]


def quantiles_of(
    trained: Trained, model: Recurrent, windows: Windows, places: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the quantiles (W, H, 5) of a model for windows at places (W, 2); raise RunError if one is not finite."""
    many, found = max(min(BATCH, MAX_WINDOW // (windows.context + windows.horizon)), 1), list[NDArray[np.float64]]()
    for start in range(0, len(places), many):
        series, origins = places[start : start + many].T
        features = torch.from_numpy(windows.features(series, origins))  # (T + H, B, m)
        with torch.no_grad():
            outputs = trained.checked(model(features, skip=windows.skip)[0])  # (H, B, Q)
            if isinstance(model, Forecaster):
                outputs = model.widened(outputs, windows.numbers[series])
        found.append(windows.forecasts(series, origins, outputs.double().numpy()).transpose(1, 0, 2))
    quantiles = np.concatenate(found)
    if not np.isfinite(quantiles).all():
        raise RunError(f"{trained.path}: its forecasts are not finite; it cannot be used on these series")
    return quantiles


def places(path: Path, *, force: bool) -> tuple[Path, Path]:
    """Return the paths of table and picture; raise ValueError if one exists, unless `force`."""
    if path.suffix.lower() != ".csv":
        raise ValueError(f"output must be a .csv file, got {path}")
    files = path, path.with_suffix(".png")
    if not force:
        check_free(files, f"choose another name, or overwrite it with {flag('force')}")
    return files


def write_forecasts(forecasts: Sequence[Forecast], files: tuple[Path, Path]) -> None:
    """Write the forecasts as a table, and a picture of the first ones."""
    write_files({files[0]: table(forecasts), files[1]: picture(forecasts)})


def table(forecasts: Sequence[Forecast]) -> bytes:
    """Return the forecasts as a CSV file: series (if there are several), time or step, median and intervals."""
    columns, text = Forecasts(forecasts).columns(), io.StringIO()
    if "time" in columns:
        whens = [when for each in forecasts for when in shown_times(each.times)[len(each.history) :]]
        columns["time"] = np.array(whens)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([f"{value:.8g}" if isinstance(value, float) else value for value in row])
    return text.getvalue().encode()


def shown_times(times: Whens | None) -> list[str]:
    """Return times as texts, no finer than they need: days, seconds or microseconds; integers as they are."""
    if times is None:
        return []
    if times.dtype.kind != "M":
        return [str(step) for step in times.tolist()]
    unit = next(unit for unit in ("D", "s", "us") if (times.astype(f"datetime64[{unit}]") == times).all())
    shown: list[str] = times.astype(f"datetime64[{unit}]").astype(str).tolist()
    return shown


assert len(QUANTILES) == len(ORDER)
