"""The forecasts of a backtest, what came true, and how good they are."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rru.data.own.times import Whens
from rru.data.spelling import flag
from rru.inference import notebook
from rru.inference.forecasting import HEAD, ORDER, shown_times
from rru.inference.output import check_free, write_files
from rru.tasks.accuracy import MEASURES, Means, errors, measures

LABELS = {
    "mase": "MASE",
    "smape": "sMAPE",
    "mae": "MAE",
    "rmse": "RMSE",
    "pinball": "pinball",
    "coverage_80": "in 80 %",
    "coverage_95": "in 95 %",
}
"""What measures are called in tables."""

Scores = dict[str, dict[str, float]]
"""The value of each measure by name, for each method by name; NaN where it has none."""


@dataclass(frozen=True)
class Window:
    """One forecast from one origin.

    **Arguments:**

    - `series`: the name of the series; empty if there is only one.
    - `origin`: the last known step, counted from 0.
    - `times`: (1 + horizon,), of the origin and the steps after it; None if the series has neither times nor steps.
    - `actual`: (horizon,), what came true; NaN where it is not known.
    - `naive`: what MASE divides by.
    """

    series: str
    origin: int
    times: Whens | None
    actual: NDArray[np.float64]
    naive: float


@dataclass(frozen=True, repr=False)
class Backtest:
    """Forecasts from origins in the past, compared with what came true. Notebooks show the scores as a table.

    **Arguments:**

    - `target`: the column that is forecast.
    - `data`, `weights`: what was forecast, and with which weights, in words.
    - `windows`: the forecasts that were asked for, by series and time.
    - `forecasts`: of each method, in the order of the windows; the model's are first: quantiles (W, horizon, 5), see
      `rru.tasks.QUANTILES`, or values (W, horizon).
    - `notes`: what a user should know.
    """

    target: str
    data: str
    weights: str
    windows: Sequence[Window]
    forecasts: Mapping[str, NDArray[np.float64]]
    notes: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """The name of the model among the methods."""
        return next(iter(self.forecasts))

    @property
    def horizon(self) -> int:
        """The number of steps of each forecast."""
        return len(self.windows[0].actual)

    @property
    def series(self) -> list[str]:
        """The names of the series."""
        return list(dict.fromkeys(window.series for window in self.windows))

    @cached_property
    def _measures(self) -> dict[str, dict[str, NDArray[np.float64]]]:
        """The measures (W, horizon) of each method."""
        actual = np.stack([window.actual for window in self.windows])
        naive = np.array([window.naive for window in self.windows])[:, None]
        return {
            name: (measures if given.ndim == 3 else errors)(actual, given, naive)
            for name, given in self.forecasts.items()
        }

    @property
    def scores(self) -> Scores:
        """All measures of each method, over all values; the method with the lowest MASE comes first."""
        found = {name: next(self._grouped(name, 1, 0)) for name in self.forecasts}
        return dict(sorted(found.items(), key=lambda item: item[1]["mase"]))

    def by_step(self) -> list[Scores]:
        """Return the scores of each step of the horizon."""
        return self._by(self.horizon, np.arange(self.horizon))

    def by_series(self) -> dict[str, Scores]:
        """Return the scores of each series, by its name."""
        numbers = {name: number for number, name in enumerate(self.series)}
        groups = np.array([numbers[window.series] for window in self.windows])[:, None]
        return dict(zip(numbers, self._by(len(numbers), groups), strict=True))

    def _by(self, count: int, groups: NDArray[np.int64]) -> list[Scores]:
        columns = [self._grouped(name, count, groups) for name in self.forecasts]
        return [dict(zip(self.forecasts, row, strict=True)) for row in zip(*columns, strict=True)]

    def _grouped(self, name: str, count: int, groups: NDArray[np.int64] | int) -> Iterator[dict[str, float]]:
        """Yield the scores of a method in each group of values."""
        means = Means(count)
        means.add(self._measures[name], groups)
        found = means.means()
        nothing = np.full(count, np.nan)
        return iter(
            {measure: float(found.get(measure, nothing)[number]) for measure in MEASURES} for number in range(count)
        )

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return all forecasts as a dict of arrays, a row for each step of each forecast.

        The columns are series (if there are several), origin, time or step, ahead (1 is the step after the origin),
        actual, the model's median and intervals, and the forecast of each other method.
        """
        several = len(self.series) > 1 or bool(self.series[0])
        times = self.windows[0].times
        when = "time" if times is not None and times.dtype.kind == "M" else "step"
        whens = np.stack([_whens(window) for window in self.windows])  # (W, 1 + horizon)
        count = self.horizon
        names = {"series": np.repeat([window.series for window in self.windows], count)} if several else {}
        quantiles = self.forecasts[self.model][..., ORDER].reshape(-1, len(ORDER))
        others = {_column(name): given for name, given in self.forecasts.items() if name != self.model}
        return {
            **names,
            "origin": np.repeat(whens[:, 0], count),
            when: whens[:, 1:].ravel(),
            "ahead": np.tile(np.arange(1, count + 1), len(self.windows)),
            "actual": np.concatenate([window.actual for window in self.windows]),
            **dict(zip(HEAD, quantiles.T, strict=True)),
            **{name: (given[..., ORDER[0]] if given.ndim == 3 else given).ravel() for name, given in others.items()},
        }

    def score_rows(self) -> list[list[str | float]]:
        """Return all scores as rows of a table, the head first: over all values, by step ahead and by series."""
        rows: list[list[str | float]] = [["of", "which", "method", *MEASURES]]
        named = [("step ahead", str(step), scores) for step, scores in enumerate(self.by_step(), 1)]
        if len(self.series) > 1:
            named += [("series", name, scores) for name, scores in self.by_series().items()]
        for of, which, scores in [("all", "", self.scores), *named]:
            rows += [[of, which, method, *values.values()] for method, values in scores.items()]
        return rows

    def save(self, path: Path | str, *, force: bool = False) -> tuple[Path, Path]:
        """Write all forecasts to a CSV file, and all scores to one next to it; return both. `force` overwrites."""
        files = places(Path(path), force=force)
        columns = self.columns()
        for name in ("origin", "time"):
            if columns.get(name, columns["actual"]).dtype.kind == "M":
                columns[name] = np.array(shown_times(columns[name]))
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        write_files({files[0]: _csv([list(columns), *map(list, rows)]), files[1]: _csv(self.score_rows())})
        return files

    def __repr__(self) -> str:
        ranked = ", ".join(f"{name} {values['mase']:.3g}" for name, values in self.scores.items())
        return f"<Backtest of {self.target!r}, {len(self.windows):,} forecasts of {self.horizon} steps; MASE: {ranked}>"

    def _repr_html_(self) -> str:
        return notebook.table([["", *LABELS.values()], *table_rows(self.scores)])


def table_rows(scores: Scores) -> list[list[str]]:
    """Return the scores of methods as rows of texts, without head."""
    return [[name, *(shown_score(each, values[each]) for each in MEASURES)] for name, values in scores.items()]


def shown_score(measure: str, value: float) -> str:
    """Return a score as text; a dash if there is none."""
    if np.isnan(value):
        return "-"
    if measure.startswith("coverage"):
        return f"{value:.0f} %"
    return f"{value:.3f}" if measure == "mase" else f"{value:.1f} %" if measure == "smape" else f"{value:.4g}"


def places(path: Path, *, force: bool) -> tuple[Path, Path]:
    """Return the paths of forecasts and scores; raise ValueError if one exists, unless `force`."""
    if path.suffix.lower() != ".csv":
        raise ValueError(f"output must be a .csv file, got {path}")
    files = path, path.with_name(f"{path.stem}-scores{path.suffix}")
    if not force:
        check_free(files, f"choose another name, or overwrite it with {flag('force')}")
    return files


def _whens(window: Window) -> Whens:
    return window.origin + np.arange(len(window.actual) + 1) if window.times is None else window.times


def _column(name: str) -> str:
    return name.lower().replace(" ", "_")


def _csv(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return text.getvalue().encode()


def _cell(value: object) -> object:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.8g}"
    return value
