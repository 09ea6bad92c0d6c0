"""What the report shows of forecasts besides their scores: fans, errors by step, and how series differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rru.data.own.scaling import LAST, SEASONAL
from rru.tasks.accuracy import Means

if TYPE_CHECKING:
    from torch import nn

    from rru.tasks.series import SeriesTask

BASELINES = (LAST, SEASONAL)
MAX_FANS, FAN_HISTORY, MAX_HISTORY = 6, 4, 400  # series, horizons and steps that the report shows
EXTREMES = 3  # best series, and worst
LOW, HIGH = 50.0, 95.0
"""Coverage of the 80 % interval, in per cent, below and above which a series has too narrow or too wide intervals."""
BINS = 10  # of the histogram of coverage


def details(task: SeriesTask, model: nn.Module, test: NDArray[np.int64]) -> dict[str, object]:
    """Return the details of a model on the windows (W, 2) of the test part, as JSON values.

    `fans` are the last forecasts of the first series, `more_fans` those of the best and the worst series that are not
    among them; `steps` are errors by step of the horizon; `best` and `worst` are series with their MASE and coverage;
    `coverage` says how many series have which coverage. The last three need several series.
    """
    by_step, by_series = Means(task.windows.horizon), Means(len(task.windows.starts))
    for places in task.evaluated("test"):
        found = task.measured(model, places)
        by_step.add(found, np.arange(task.windows.horizon))
        by_series.add(found, places[:, :1])
    last = {int(series): test[test[:, 0] == series][-1] for series in np.unique(test[:, 0])[:MAX_FANS]}
    shown: dict[str, object] = {
        "target": task.facts.layout.target,
        "fans": _fans(task, model, list(last.values())),
        "steps": {
            name: _plain(values[:MAX_HISTORY])
            for name, values in by_step.means().items()
            if name in ("mase", *(f"mase_{base}" for base in BASELINES))
        },
    }
    scored = np.flatnonzero(by_series.counts)
    if len(scored) < 2:
        return shown
    means = by_series.means()
    order = scored[np.argsort(means["mase"][scored], kind="stable")]
    count = min(EXTREMES, len(order) // 2)
    best, worst = order[:count], order[::-1][:count]
    names = list(task.facts.series)

    def named(some: NDArray[np.int64]) -> list[dict[str, object]]:
        keys = ("mase", "coverage_80", *(f"mase_{base}" for base in BASELINES))
        return [{"name": names[each], **{key: _rounded(means[key][each]) for key in keys}} for each in some.tolist()]

    more = [test[test[:, 0] == each][-1] for each in (worst[0], best[0]) if int(each) not in last]
    return {
        **shown,
        "more_fans": _fans(task, model, more),
        "best": named(best),
        "worst": named(worst),
        "coverage": _coverage(means["coverage_80"][scored]),
    }


def _coverage(shares: NDArray[np.float64]) -> dict[str, object]:
    """Return how many series have which coverage of their 80 % interval, from the coverage (S,) in per cent."""
    histogram, _ = np.histogram(shares, BINS, (0.0, 100.0))
    low, high = int((shares < LOW).sum()), int((shares > HIGH).sum())
    return {"series": len(shares), "low": low, "high": high, "histogram": histogram.tolist()}


def _fans(task: SeriesTask, model: nn.Module, windows: Sequence[NDArray[np.int64]]) -> list[dict[str, object]]:
    """Return the forecasts of windows, with what came before and what came true."""
    if not windows:
        return []
    places = np.array(windows)
    forecasts = task.forecasts(model, places)[:, :MAX_HISTORY]  # (B, H, Q)
    actual = task.windows.actual(*places.T)  # (B, H)
    baselines = {base: task.windows.simple(base, *places.T) for base in BASELINES}  # (B, H) each
    names, fans = list(task.facts.series), list[dict[str, object]]()
    for number, (series, origin) in enumerate(places.tolist()):
        first = max(origin + 1 - min(FAN_HISTORY * task.windows.horizon, MAX_HISTORY), 0)
        steps = task.windows.starts[series] + np.arange(first, origin + 1)
        history = np.where(task.windows.observed[steps], task.windows.values[steps], np.nan)
        fans.append(
            {
                "name": names[series],
                "times": _times(task, series, first, origin + 1 + min(task.windows.horizon, MAX_HISTORY)),
                "history": _plain(history),
                "actual": _plain(actual[number][:MAX_HISTORY]),
                "quantiles": [_plain(row) for row in forecasts[number]],
                **{base: _plain(values[number][:MAX_HISTORY]) for base, values in baselines.items()},
            }
        )
    return fans


def _times(task: SeriesTask, series: int, first: int, end: int) -> list[str]:
    """Return the times of the steps of a series from `first` up to `end`; empty without times."""
    facts = task.facts
    if (step := facts.layout.step) and facts.starts:
        return [str(int(facts.starts[series]) + step * place) for place in range(first, end)]
    if facts.layout.frequency is None or not facts.starts:
        return []
    start = np.datetime64(facts.starts[series], "us")
    return [_short_time(time) for time in facts.layout.frequency.times(start, np.arange(first, end))]


def _plain(values: NDArray[np.float64]) -> list[float | None]:
    """Return numbers with six digits as JSON values, None for NaN."""
    return [_rounded(value) for value in values.tolist()]


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else float(f"{value:.6g}")


def _short_time(time: np.datetime64) -> str:
    """Format a time without the parts that are zero: `2026-01-31`, `2026-01-31 13:00`."""
    text = str(time.astype("datetime64[us]")).removesuffix(".000000").removesuffix(":00").removesuffix("T00:00")
    return text.replace("T", " ")
