"""Forecast series with a trained model."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own.data_json import MAX_WINDOW, SeriesFacts
from rru.data.own.resampling import RegularSeries, read_series
from rru.data.own.scaling import Scaling
from rru.data.own.source import check_place
from rru.data.own.table import read_table
from rru.data.own.times import Times
from rru.inference.fans import picture
from rru.inference.output import check_free, write_files
from rru.inference.trained import Trained
from rru.tasks import QUANTILES, SeriesPart, Windows
from rru.training import RunError

BATCH = 256  # series at once
HEAD = ("forecast", "low_80", "high_80", "low_95", "high_95")
ORDER = (2, 1, 3, 0, 4)  # of the quantiles in HEAD


@dataclass(frozen=True)
class Forecast:
    """The forecast of one series.

    **Arguments:**

    - `name`: its id; empty if there is only one.
    - `target`: the column that is forecast.
    - `history`: (T,), the values before, NaN where missing.
    - `quantiles`: (horizon, 5): see `rru.tasks.QUANTILES`.
    - `times`: (T + horizon,), of both; None if the series has no times.
    """

    name: str
    target: str
    history: NDArray[np.float64]
    quantiles: NDArray[np.float64]
    times: Times | None


def forecast(trained: Trained, path: Path | str | None = None) -> list[Forecast]:
    """Forecast the steps after the end of each series in a file.

    **Arguments:**

    - `trained`: a model trained on series.
    - `path`: a table with the same columns as the one it was trained on. Columns that are known in advance must go on
      for as many steps as are forecast, in rows without the target. Default: the file that it was trained on.
    """
    trained.check_command("forecast")
    facts = trained.facts
    assert trained.config.data is not None and isinstance(facts, SeriesFacts)  # noqa: PT018 (of every model of series)
    trained_on = trained.config.data.path
    if path is None and not trained_on.exists():
        raise DataError(trained_on, "is gone; give --data, a file with the series to go on from")
    path = trained_on if path is None else Path(path).expanduser()
    check_place(path)
    window = trained.config.task.context + facts.horizon
    if window > MAX_WINDOW:
        raise RunError(f"{trained.path}: context and horizon must be at most {MAX_WINDOW} steps, are {window}")
    read = read_series(read_table(path), facts.layout)
    all_series = [series.with_future(facts.horizon, path) for series in read.values()]
    forecasts: list[Forecast] = []
    many = max(min(BATCH, MAX_WINDOW // window), 1)
    for start in range(0, len(all_series), many):
        forecasts += _forecast(trained, all_series[start : start + many], facts)
    return forecasts


def _forecast(trained: Trained, some: Sequence[RegularSeries], facts: SeriesFacts) -> list[Forecast]:
    layout, log = facts.layout, any(scaling.floor is not None for scaling in facts.series.values())
    parts = [
        SeriesPart(
            series.values,
            series.observed,
            layout.standardized(series.inputs),
            facts.series.get(series.name)  # one that was not there in training is scaled by its own values
            or Scaling.of(series.values, facts.season, facts.horizon, facts.base, log=log),
        )
        for series in some
    ]
    windows = Windows(parts, facts, trained.config.task.context)
    places = np.arange(len(some)), np.array([len(series.values) - 1 for series in some])
    features = torch.from_numpy(windows.features(*places))  # (T + H, B, m)
    with torch.no_grad():
        outputs = trained.checked(trained.model(features, skip=windows.context)[0])  # (H, B, Q)
    quantiles = windows.forecasts(*places, outputs.double().numpy())
    if not np.isfinite(quantiles).all():
        raise RunError(f"{trained.path}: its forecasts are not finite; it cannot be used on these series")
    history = [np.where(series.observed, series.values, np.nan) for series in some]
    times = [series.times(0, len(series.values) + windows.horizon) for series in some]
    return [
        Forecast(series.name, layout.target, history[number], quantiles[:, number], times[number])
        for number, series in enumerate(some)
    ]


def places(path: Path, *, force: bool) -> tuple[Path, Path]:
    """Return the paths of table and picture; raise ValueError if one exists, unless `force`."""
    if path.suffix.lower() != ".csv":
        raise ValueError(f"output must be a .csv file, got {path}")
    files = path, path.with_suffix(".png")
    if not force:
        check_free(files, "choose another name, or overwrite it with --force")
    return files


def write_forecasts(forecasts: Sequence[Forecast], files: tuple[Path, Path]) -> None:
    """Write the forecasts as a table, and a picture of the first ones."""
    write_files({files[0]: table(forecasts), files[1]: picture(forecasts)})


def table(forecasts: Sequence[Forecast]) -> bytes:
    """Return the forecasts as a CSV file: series (if there are several), time or step, median and intervals."""
    several = len(forecasts) > 1 or bool(forecasts[0].name)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    timed = forecasts[0].times is not None
    writer.writerow([*(["series"] if several else []), "time" if timed else "step", *HEAD])
    for forecast in forecasts:
        first, whens = len(forecast.history), None if forecast.times is None else shown_times(forecast.times)
        for place, values in enumerate(forecast.quantiles, first):
            when = str(place) if whens is None else whens[place]
            writer.writerow([*([forecast.name] if several else []), when, *(f"{values[at]:.8g}" for at in ORDER)])
    return text.getvalue().encode()


def shown_times(times: Times) -> list[str]:
    """Return times as texts, no finer than they need: days, seconds or microseconds."""
    unit = next(unit for unit in ("D", "s", "us") if (times.astype(f"datetime64[{unit}]") == times).all())
    shown: list[str] = times.astype(f"datetime64[{unit}]").astype(str).tolist()
    return shown


assert len(QUANTILES) == len(ORDER)
