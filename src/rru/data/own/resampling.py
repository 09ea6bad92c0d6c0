"""Series on regular steps, from the rows of a table: gaps are filled, and what was filled is known."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own.columns import Layout, times_of
from rru.data.own.table import Table
from rru.data.own.times import Times, calendar

MAX_SERIES = 5000
MAX_STEPS = 20_000_000  # with gaps filled


@dataclass(frozen=True)
class RegularSeries:
    """One series on regular steps.

    **Arguments:**

    - `name`: its id; empty if there is only one.
    - `start`: the time of the first step; None without times.
    - `values`: (T,), the target; where missing, the value before.
    - `observed`: (T,), where the target is known.
    - `inputs`: (T + F, layout.size), NaN where missing; F steps after the last known target.
    - `notes`: what was done about gaps.
    """

    name: str
    start: np.datetime64 | None
    values: NDArray[np.float64]
    observed: NDArray[np.bool_]
    inputs: NDArray[np.float64]
    notes: tuple[str, ...] = ()

    @property
    def future(self) -> int:
        """The number of steps after the last known target, for which the file has inputs."""
        return len(self.inputs) - len(self.values)

    def followed_by(self, other: "RegularSeries", layout: Layout, path: Path) -> "RegularSeries":
        """Return this series with another after it, and the steps between them as a gap.

        Raise DataError if the other does not begin after the last step of this one, by time; `path` is its file.
        """
        gap, notes = _gap(self, other, layout, path), (*self.notes, *other.notes)
        if gap:
            notes += (f"{gap:,} steps between the files are in neither; they are not scored",)
        end = len(self.values)
        between = np.repeat(self.inputs[end - 1 : end], gap, axis=0)
        if gap and layout.calendar:
            between[:, layout.size - len(layout.calendar) :] = _calendar(self, layout, end, end + gap)
        return replace(
            self,
            values=np.concatenate([self.values, np.repeat(self.values[-1:], gap), other.values]),
            observed=np.concatenate([self.observed, np.zeros(gap, np.bool_), other.observed]),
            inputs=np.concatenate([self.inputs[:end], between, other.inputs]),
            notes=notes,
        )


def _gap(before: RegularSeries, after: RegularSeries, layout: Layout, path: Path) -> int:
    """Return the number of steps between two series; 0 without times. Raise DataError if they overlap."""
    reason = "what is tested on must not be trained on"
    if before.start is None or after.start is None or layout.frequency is None:
        if np.ptp(after.values) and np.array_equal(before.values[-len(after.values) :], after.values):
            raise DataError(path, f"has the values that the data before it ends with: {reason}")
        return 0
    first = int(np.floor(layout.frequency.positions(np.array([after.start]), before.start)[0] + 1e-9))
    gap = first - len(before.values)
    if gap < 0:
        last = layout.frequency.times(before.start, np.array([len(before.values) - 1]))[0]
        raise DataError(
            path, f"must begin after {last}, the end of the data before it; begins at {after.start}: {reason}"
        )
    if first + len(after.values) > MAX_STEPS:
        raise DataError(path, f"begins {gap:,} steps after the end of the data before it; at most {MAX_STEPS:,}")
    return gap


def times_after(series: RegularSeries, layout: Layout, first: int, end: int) -> Times | None:
    """Return the times of the steps from `first` up to `end`, counted from the start; None without times."""
    if series.start is None or layout.frequency is None:
        return None
    return layout.frequency.times(series.start, np.arange(first, end))


def with_future(series: RegularSeries, layout: Layout, horizon: int, path: Path) -> RegularSeries:
    """Return a series with inputs for exactly `horizon` steps after its last value.

    Raise DataError if the file does not have the columns that are known in advance for so many steps.
    """
    if layout.known and series.future < horizon:
        which = f"series {series.name!r}" if series.name else "the series"
        need = f"{', '.join(layout.known)} of the {horizon} steps after the last {layout.target!r} of {which}"
        raise DataError(path, f"must have {need}, in rows without {layout.target!r}; has {series.future}")
    end = len(series.values) + horizon
    inputs = np.full((end, layout.size), np.nan)
    given = series.inputs[:end]
    inputs[: len(given)] = given
    if layout.calendar:
        inputs[:, layout.size - len(layout.calendar) :] = _calendar(series, layout, 0, end)
    return replace(series, inputs=inputs)


def _calendar(series: RegularSeries, layout: Layout, first: int, end: int) -> NDArray[np.float64]:
    """Return the calendar inputs of the steps from `first` up to `end`, (steps, calendar inputs)."""
    times = times_after(series, layout, first, end)
    assert times is not None  # a calendar needs times
    assert layout.frequency is not None
    features = calendar(times, layout.frequency)
    return np.stack([features[each] for each in layout.calendar], axis=1)


def read_series(table: Table, layout: Layout) -> dict[str, RegularSeries]:
    """Read the series of a table, by name, in order of their names; one has the empty name."""
    target = table[layout.target].numbers()
    inputs = _inputs(table, layout)
    times = None if layout.time is None else times_of(table[layout.time])
    if layout.id is None:
        groups = {"": np.arange(len(table))}
    else:
        names, numbers = np.unique(np.array(table[layout.id].texts()), return_inverse=True)
        if len(names) > MAX_SERIES:
            raise DataError(table.path, f"must have at most {MAX_SERIES:,} series, has {len(names):,} in {layout.id!r}")
        order = np.argsort(numbers, kind="stable")
        rows = np.split(order, np.cumsum(np.bincount(numbers))[:-1])
        groups = {str(name): some for name, some in zip(names, rows, strict=True)}
    columns = _Columns(target, inputs, times)
    return {name: _regular(name, table, layout, rows, columns) for name, rows in groups.items()}


def _inputs(table: Table, layout: Layout) -> NDArray[np.float64]:
    """Return the input columns (rows, size without calendar): numbers, and one for each category."""
    parts: list[NDArray[np.float64]] = []
    for name in (*layout.past, *layout.known):
        if name in layout.levels:
            texts = np.array(table[name].texts())
            parts += [(texts == level).astype(np.float64) for level in layout.levels[name]]
        else:
            parts.append(table[name].numbers())
    return np.stack(parts, axis=1) if parts else np.empty((len(table), 0))


class _Columns(NamedTuple):
    """The target (rows,), the inputs (rows, k) and the times (rows,) of a table."""

    target: NDArray[np.float64]
    inputs: NDArray[np.float64]
    times: Times | None


def _regular(name: str, table: Table, layout: Layout, rows: NDArray[np.int64], columns: _Columns) -> RegularSeries:
    values, given, times = columns.target[rows], columns.inputs[rows], columns.times
    start, notes = None, []
    if times is not None:
        assert layout.frequency is not None
        _check_order(table, layout, rows, times[rows])
        start = times[rows[0]]
        places = np.floor(layout.frequency.positions(times[rows], start) + 1e-9).astype(np.int64)
        if len(places) and places[-1] + 1 > MAX_STEPS:
            raise DataError(table.path, f"spans {places[-1] + 1:,} steps {layout.frequency}; at most {MAX_STEPS:,}")
        if gaps := int(places[-1]) + 1 - len(np.unique(places)):
            notes.append(f"{gaps:,} steps are not in the file; they repeat the value before and are not scored")
        grid = [_on_grid(column, places) for column in (values, *given.T)]
        values, given = grid[0], np.stack(grid, axis=1)[:, 1:]
    there = np.flatnonzero(~np.isnan(values))
    which = f"series {name!r} of column" if name else "column"
    if len(there) < 2:
        raise DataError(table.path, f"{which} {layout.target!r} must have at least two values, got {len(there)}")
    first, end = int(there[0]), int(there[-1]) + 1
    if start is not None:
        assert layout.frequency is not None
        start = layout.frequency.times(start, np.array([first]))[0]
        features = calendar(layout.frequency.times(start, np.arange(len(values) - first)), layout.frequency)
        given = np.column_stack([given[first:], *(features[each] for each in layout.calendar)])
    else:
        given = given[first:]
    observed = ~np.isnan(values[first:end])
    return RegularSeries(name, start, _carried(values[first:end]), observed, _carried(given), tuple(notes))


def _check_order(table: Table, layout: Layout, rows: NDArray[np.int64], times: Times) -> None:
    """Raise DataError if times go backwards, or are there twice."""
    steps = np.diff(times).astype(np.int64)
    assert layout.time is not None
    column = table[layout.time]
    if (steps < 0).any():
        row = int(rows[int((steps < 0).argmax()) + 1])
        raise column.error(
            row, f"column {layout.time!r} goes back in time, at {column.cells[row]}; sort the rows by time"
        )
    if (steps == 0).any():
        row = int(rows[int((steps == 0).argmax()) + 1])
        ids = [each.name for each in table if each.kind == "category" and each.name != layout.id]
        several = f"; are these several series? Give --id {ids[0]}" if ids and layout.id is None else ""
        raise column.error(
            row, f"column {layout.time!r} has {column.cells[row]} twice{several or '; keep one of them'}"
        )


def _on_grid(values: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean of the values at each place, NaN where there is none."""
    there = ~np.isnan(values)
    size = int(places[-1]) + 1
    counts = np.bincount(places[there], minlength=size)
    sums = np.bincount(places[there], weights=values[there], minlength=size)
    return np.asarray(np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0))


def _carried(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace NaN by the value before it, in each column; at the beginning NaN stays."""
    places = np.where(np.isnan(values), 0, np.arange(len(values)).reshape(-1, *([1] * (values.ndim - 1))))
    places = np.maximum.accumulate(places, axis=0)
    return np.asarray(np.take_along_axis(values, places, axis=0))
