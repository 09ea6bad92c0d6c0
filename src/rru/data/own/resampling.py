"""Series on regular steps, from the rows of a table: gaps are filled, and what was filled is known."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own.clock import groups_of
from rru.data.own.column import MAX_CATEGORY, is_number
from rru.data.own.columns import Layout
from rru.data.own.filling import filled
from rru.data.own.scaling import Values, carried
from rru.data.own.table import Table
from rru.data.own.times import When, Whens, calendar
from rru.data.spelling import option

MAX_SERIES = 100_000
MAX_STEPS = 20_000_000  # with gaps filled


@dataclass(frozen=True)
class RegularSeries:
    """One series on regular steps.

    **Arguments:**

    - `name`: its id; empty if there is only one.
    - `layout`: what the columns of its table are.
    - `start`: the time of the first step, or the integer that counts it; None without times.
    - `values`: (T,), the target; where missing, the value before, or as `filled` says.
    - `observed`: (T,), where the target is known.
    - `inputs`: (T + F, layout.size), NaN where missing; F steps after the last known target.
    - `notes`: what was done about gaps.
    """

    name: str
    layout: Layout
    start: When | None
    values: Values
    observed: NDArray[np.bool_]
    inputs: Values
    notes: tuple[str, ...] = ()

    def times(self, first: int, end: int) -> Whens | None:
        """Return the times of the steps from `first` up to `end`, counted from the start; None without times."""
        return None if self.start is None else self.layout.whens_at(self.start, np.arange(first, end))

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
        reason = "what is tested on must not be trained on"
        if self.start is None or other.start is None:
            if np.ptp(other.values) and np.array_equal(self.values[-len(other.values) :], other.values):
                raise DataError(path, f"has the values that the data before it ends with: {reason}")
            return 0
        first = int(np.floor(self.layout.positions(np.array([other.start]), self.start)[0] + 1e-9))
        gap = first - len(self.values)
        if gap < 0:
            last = self.layout.whens_at(self.start, np.array([len(self.values) - 1]))[0]
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

    def filled(self, season: int) -> "RegularSeries":
        """Return the series with missing values filled from a season before; see `rru.data.own.filling`."""
        return replace(self, values=filled(self.values, self.observed, season))

    def _with_calendar(self, inputs: Values, first: int) -> Values:
        """Return inputs (steps, layout.size) from the step `first` on with those that are made of the times."""
        times, frequency = self.times(first, first + len(inputs)), self.layout.frequency
        if not self.layout.calendar or times is None or frequency is None:
            return inputs
        features = calendar(times.astype("datetime64[us]"), frequency)
        made = np.stack([features[name] for name in self.layout.calendar], axis=1)
        return np.concatenate([inputs[:, : -made.shape[1]], made], axis=1)


def read_series(table: Table, layout: Layout, season: int = 1) -> dict[str, RegularSeries]:
    """Read the series of a table, by name, in order of their names; one has the empty name.

    Missing values are filled from a `season` before; 1 is the value before.
    """
    names, series = groups_of(table, layout.id)
    if len(names) > MAX_SERIES:
        raise DataError(table.path, f"must have at most {MAX_SERIES:,} series, has {len(names):,} in {layout.id!r}")
    numbers, whens = _numbers(table, layout), layout.whens(table)
    order, notes = _order(table, layout, series, whens)
    found, gaps = dict[str, RegularSeries](), list[int]()
    for name, rows in zip(names, np.split(order, np.cumsum(np.bincount(series))[:-1]), strict=True):
        if np.isnan(numbers[rows, 0]).all():
            continue
        found[name], gap = _regular(name, table, layout, numbers[rows], None if whens is None else whens[rows])
        gaps += [gap] if gap else []
    if (most := max((int(each.observed.sum()) for each in found.values()), default=0)) < 2:
        which = "a series of column" if layout.id else "column"
        raise DataError(table.path, f"{which} {layout.target!r} must have at least two values, got {most}")
    if empty := len(names) - len(found):
        notes += (f"{empty:,} series have no values of {layout.target!r} and are left out",)
    if gaps:
        which = f" of {len(gaps):,} series" if len(names) > 1 else ""
        steps, are, they = ("step", "is", "it is") if sum(gaps) == 1 else ("steps", "are", "they are")
        notes += (f"{sum(gaps):,} {steps}{which} {are} not in the file; {they} filled and not scored",)
    return {name: replace(each.filled(season), notes=notes) for name, each in found.items()}


def _order(
    table: Table, layout: Layout, series: NDArray[np.int64], whens: Whens | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the rows in order of series and time, and a note if times were not in order; else the file's order.

    Raise DataError if a series has a time twice.
    """
    order = np.argsort(series, kind="stable")
    if whens is None or layout.time is None:
        return order, ()
    notes: tuple[str, ...] = ()
    same = np.diff(series[order]) == 0
    if (same & (np.diff(whens[order]).astype(np.int64) < 0)).any():
        order, notes = np.lexsort((whens, series)), ("rows were not in order of time; sorted",)
    if (twice := same & (np.diff(whens[order]).astype(np.int64) == 0)).any():
        row, column = int(order[int(twice.argmax()) + 1]), table[layout.time]
        name = _id_column(table, layout, whens, int(twice.sum())) if layout.id is None else None
        several = f"; are these several series? Give {option('id', name)}" if name else ""
        reason = f"column {layout.time!r} has {column.cells[row]} twice{several or '; keep one of them'}"
        raise column.error(row, reason)
    return order, notes


def _id_column(table: Table, layout: Layout, whens: Whens, twice: int) -> str | None:
    """Return the column that seems to name series, because most of the rows with a time `twice` differ in it, or None.

    Of numbers, only integers name series, and only if the times of many rows come again.
    """
    left = dict[str, int]()
    for column in table:
        if column.name in (layout.time, layout.target) or column.kind not in ("category", "text", "number"):
            continue
        names, series = groups_of(table, column.name)
        if not 1 < len(names) <= len(table) / 2 or (column.kind == "text" and max(map(len, names)) > MAX_CATEGORY):
            continue
        if column.kind == "number" and (twice < len(table) / 10 or not all(map(_is_whole, names))):
            continue
        order = np.lexsort((whens, series))
        same = (np.diff(series[order]) == 0) & (np.diff(whens[order]).astype(np.int64) == 0)
        left[column.name] = int(same.sum())
    best = min(left, key=left.__getitem__, default=None)
    return best if best is not None and left[best] <= twice / 2 else None


def _is_whole(text: str) -> bool:
    return is_number(text) and float(text).is_integer()


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
    name: str, table: Table, layout: Layout, numbers: Values, whens: Whens | None
) -> tuple[RegularSeries, int]:
    """Return a series, from its numbers (rows, 1 + size) and times (rows,), and how many steps are not there."""
    gaps = 0
    if whens is not None:
        places = np.floor(layout.positions(whens, whens[0]) + 1e-9).astype(np.int64)
        steps = int(places[-1]) + 1
        if steps > MAX_STEPS:
            raise DataError(table.path, f"spans {steps:,} steps, {layout.rate}; at most {MAX_STEPS:,}")
        there = 1 + int(np.count_nonzero(np.diff(places)))
        gaps = steps - there
        if gaps or there < len(places):
            numbers = np.stack([_on_grid(column, places) for column in numbers.T], axis=1)
    known = np.flatnonzero(~np.isnan(numbers[:, 0]))
    first, end = int(known[0]), int(known[-1]) + 1
    start = None if whens is None else layout.whens_at(whens[0], np.array([first]))[0]
    target, known_before = numbers[first:end, 0], carried(numbers[first:])
    values, inputs = known_before[: end - first, 0], known_before[:, 1:]
    series = RegularSeries(name, layout, start, values, ~np.isnan(target), inputs)
    return replace(series, inputs=series._with_calendar(series.inputs, 0)), gaps


def _on_grid(values: Values, places: NDArray[np.int64]) -> Values:
    """Return the mean of the values at each place, NaN where there is none."""
    there = ~np.isnan(values)
    size = int(places[-1]) + 1
    counts = np.bincount(places[there], minlength=size)
    sums = np.bincount(places[there], weights=values[there], minlength=size)
    return np.asarray(np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0))
