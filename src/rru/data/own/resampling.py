"""Series on regular steps, from the rows of a table: gaps are filled, and what was filled is known."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own.columns import Layout, times_of
from rru.data.own.scaling import Values, carried
from rru.data.own.table import Table
from rru.data.own.times import Times, calendar
from rru.data.spelling import option

MAX_SERIES = 5000
MAX_STEPS = 20_000_000  # with gaps filled


@dataclass(frozen=True)
class RegularSeries:
    """One series on regular steps.

    **Arguments:**

    - `name`: its id; empty if there is only one.
    - `layout`: what the columns of its table are.
    - `start`: the time of the first step; None without times.
    - `values`: (T,), the target; where missing, the value before.
    - `observed`: (T,), where the target is known.
    - `inputs`: (T + F, layout.size), NaN where missing; F steps after the last known target.
    - `notes`: what was done about gaps.
    """

    name: str
    layout: Layout
    start: np.datetime64 | None
    values: Values
    observed: NDArray[np.bool_]
    inputs: Values
    notes: tuple[str, ...] = ()

    def times(self, first: int, end: int) -> Times | None:
        """Return the times of the steps from `first` up to `end`, counted from the start; None without times."""
        if self.start is None or self.layout.frequency is None:
            return None
        return self.layout.frequency.times(self.start, np.arange(first, end))

    def followed_by(self, other: "RegularSeries", path: Path) -> "RegularSeries":
        """Return this series with another after it, and the steps between them as a gap.

        Raise DataError if the other does not begin after the last step of this one, by time; `path` is its file.
        """
        gap, notes = self._gap_before(other, path), (*self.notes, *other.notes)
        if gap:
            notes += (f"{gap:,} steps between the files are in neither; they are not scored",)
        end = len(self.values)
        between = self._with_calendar(np.repeat(self.inputs[end - 1 : end], gap, axis=0), end)
        return replace(
            self,
            values=np.concatenate([self.values, np.repeat(self.values[-1:], gap), other.values]),
            observed=np.concatenate([self.observed, np.zeros(gap, np.bool_), other.observed]),
            inputs=np.concatenate([self.inputs[:end], between, other.inputs]),
            notes=notes,
        )

    def _gap_before(self, other: "RegularSeries", path: Path) -> int:
        """Return the number of steps before another series; 0 without times. Raise DataError if they overlap."""
        reason, frequency = "what is tested on must not be trained on", self.layout.frequency
        if self.start is None or other.start is None or frequency is None:
            if np.ptp(other.values) and np.array_equal(self.values[-len(other.values) :], other.values):
                raise DataError(path, f"has the values that the data before it ends with: {reason}")
            return 0
        first = int(np.floor(frequency.positions(np.array([other.start]), self.start)[0] + 1e-9))
        gap = first - len(self.values)
        if gap < 0:
            last = frequency.times(self.start, np.array([len(self.values) - 1]))[0]
            wrong = f"must begin after {last}, the end of the data before it; begins at {other.start}"
            raise DataError(path, f"{wrong}: {reason}")
        if first + len(other.values) > MAX_STEPS:
            raise DataError(path, f"begins {gap:,} steps after the end of the data before it; at most {MAX_STEPS:,}")
        return gap

    def with_future(self, horizon: int, path: Path) -> "RegularSeries":
        """Return the series with inputs for exactly `horizon` steps after its last value.

        Raise DataError if the file does not have the columns that are known in advance for so many steps.
        """
        layout, future = self.layout, len(self.inputs) - len(self.values)
        if layout.known and future < horizon:
            which = f"series {self.name!r}" if self.name else "the series"
            need = f"{', '.join(layout.known)} of the {horizon} steps after the last {layout.target!r} of {which}"
            raise DataError(path, f"must have {need}, in rows without {layout.target!r}; has {future}")
        missing = np.full((max(horizon - future, 0), layout.size), np.nan)
        inputs = np.concatenate([self.inputs, missing])[: len(self.values) + horizon]
        return replace(self, inputs=self._with_calendar(inputs, 0))

    def _with_calendar(self, inputs: Values, first: int) -> Values:
        """Return inputs (steps, layout.size) from the step `first` on with those that are made of the times."""
        times, frequency = self.times(first, first + len(inputs)), self.layout.frequency
        if not self.layout.calendar or times is None or frequency is None:
            return inputs
        features = calendar(times, frequency)
        made = np.stack([features[name] for name in self.layout.calendar], axis=1)
        return np.concatenate([inputs[:, : -made.shape[1]], made], axis=1)


def read_series(table: Table, layout: Layout) -> dict[str, RegularSeries]:
    """Read the series of a table, by name, in order of their names; one has the empty name."""
    numbers = _numbers(table, layout)
    times = None if layout.time is None else times_of(table[layout.time])
    if layout.id is None:
        return {"": _regular("", table, layout, np.arange(len(table)), numbers, times)}
    names, series = np.unique(np.array(table[layout.id].texts()), return_inverse=True)
    if len(names) > MAX_SERIES:
        raise DataError(table.path, f"must have at most {MAX_SERIES:,} series, has {len(names):,} in {layout.id!r}")
    order = np.argsort(series, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(series))[:-1])
    return {
        str(name): _regular(str(name), table, layout, rows, numbers[rows], None if times is None else times[rows])
        for name, rows in zip(names, groups, strict=True)
    }


def _numbers(table: Table, layout: Layout) -> Values:
    """Return the target and the inputs (rows, 1 + size): numbers, a column for each category, NaN for the calendar."""
    columns = [table[layout.target].numbers()]
    for name in (*layout.past, *layout.known):
        if name in layout.levels:
            texts = np.array(table[name].texts())
            columns += [(texts == level).astype(np.float64) for level in layout.levels[name]]
        else:
            columns.append(table[name].numbers())
    return np.stack([*columns, *[np.full(len(table), np.nan)] * len(layout.calendar)], axis=1)


def _regular(
    name: str, table: Table, layout: Layout, rows: NDArray[np.int64], numbers: Values, times: Times | None
) -> RegularSeries:
    """Return the series in some rows of a table, from their numbers (rows, 1 + size) and times (rows,)."""
    notes: tuple[str, ...] = ()
    if times is not None and layout.frequency is not None:
        _check_order(table, layout, rows, times)
        places = np.floor(layout.frequency.positions(times, times[0]) + 1e-9).astype(np.int64)
        steps = int(places[-1]) + 1
        if steps > MAX_STEPS:
            raise DataError(table.path, f"spans {steps:,} steps {layout.frequency}; at most {MAX_STEPS:,}")
        if gaps := steps - len(np.unique(places)):
            notes = (f"{gaps:,} steps are not in the file; they repeat the value before and are not scored",)
        numbers = np.stack([_on_grid(column, places) for column in numbers.T], axis=1)
    there = np.flatnonzero(~np.isnan(numbers[:, 0]))
    if len(there) < 2:
        which = f"series {name!r} of column" if name else "column"
        raise DataError(table.path, f"{which} {layout.target!r} must have at least two values, got {len(there)}")
    first, end = int(there[0]), int(there[-1]) + 1
    start = None
    if times is not None and layout.frequency is not None:
        start = layout.frequency.times(times[0], np.array([first]))[0]
    target, filled = numbers[first:end, 0], carried(numbers[first:])
    series = RegularSeries(name, layout, start, filled[: end - first, 0], ~np.isnan(target), filled[:, 1:], notes)
    return replace(series, inputs=series._with_calendar(series.inputs, 0))


def _check_order(table: Table, layout: Layout, rows: NDArray[np.int64], times: Times) -> None:
    """Raise DataError if times go backwards, or are there twice."""
    steps = np.diff(times).astype(np.int64)
    assert layout.time is not None
    column = table[layout.time]
    if (steps < 0).any():
        row = int(rows[int((steps < 0).argmax()) + 1])
        reason = f"column {layout.time!r} goes back in time, at {column.cells[row]}; sort the rows by time"
        raise column.error(row, reason)
    if (steps == 0).any():
        row = int(rows[int((steps == 0).argmax()) + 1])
        ids = [each.name for each in table if each.kind == "category" and each.name != layout.id]
        several = f"; are these several series? Give {option('id', ids[0])}" if ids and layout.id is None else ""
        reason = f"column {layout.time!r} has {column.cells[row]} twice{several or '; keep one of them'}"
        raise column.error(row, reason)


def _on_grid(values: Values, places: NDArray[np.int64]) -> Values:
    """Return the mean of the values at each place, NaN where there is none."""
    there = ~np.isnan(values)
    size = int(places[-1]) + 1
    counts = np.bincount(places[there], minlength=size)
    sums = np.bincount(places[there], weights=values[there], minlength=size)
    return np.asarray(np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0))
