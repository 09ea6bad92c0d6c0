"""The columns of a table of series: which is the target, the time, the id, and which are inputs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own.scaling import JSON, ColumnScale
from rru.data.own.table import Column, Table
from rru.data.own.times import Frequency, Times, calendar, frequency_of, parse
from rru.data.spelling import option

TIME_NAMES = ("date", "time", "datetime", "timestamp", "year", "day", "ds", "t")
ALL = "all"
Options = Mapping[str, Any]
"""How to read a user's data, by name; those at their default are left out."""
MAX_LEVELS = 50  # categories of an input
MAX_INPUTS = 500
YEARS, UNIX = (1000, 2999), (10**9, 4 * 10**9)


@dataclass(frozen=True)
class Layout:
    """What the columns of a table are; a run keeps it, to read new data in the same way.

    **Arguments:**

    - `target`: the column to forecast.
    - `time`, `id`: the columns with times and names of series; None if there is none.
    - `past`, `known`: input columns; those in `known` are known in advance.
    - `calendar`: the inputs that are made of the times, such as `hour sin`.
    - `levels`: the categories of the input columns that are not numbers.
    - `frequency`: the time between steps; None without times.
    - `means`, `deviations`: of each input, from the training part.
    """

    target: str
    time: str | None = None
    id: str | None = None
    past: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    calendar: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    frequency: Frequency | None = None
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()

    @property
    def past_size(self) -> int:
        """The number of inputs that are not known in advance; they come first."""
        return sum(len(self.levels.get(name, "1")) for name in self.past)

    @property
    def input_names(self) -> list[str]:
        """The input columns, and `calendar`."""
        return [
            *self.past,
            *(f"{name} (known in advance)" for name in self.known),
            *(["calendar"] if self.calendar else []),
        ]

    @property
    def size(self) -> int:
        """The number of inputs; a category has one for each of its levels."""
        return sum(len(self.levels.get(name, "1")) for name in (*self.past, *self.known)) + len(self.calendar)

    def scaled(self, inputs: Sequence[NDArray[np.float64]]) -> "Layout":
        """Return the layout with means and deviations of inputs (T, size) of training parts."""
        scale = ColumnScale.of(np.concatenate(inputs))
        return replace(self, means=scale.mean, deviations=scale.deviation)

    def standardized(self, inputs: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return inputs (T, size) with mean 0 and deviation 1 in the training part; 0 where missing."""
        scaled = (inputs - np.array(self.means)) / np.array(self.deviations)
        return np.asarray(np.clip(np.nan_to_num(scaled), -10, 10), np.float32)

    @classmethod
    def from_fields(cls, fields: JSON) -> "Layout":
        """Build a layout from JSON values; raise ValueError, TypeError, KeyError or the like if they are wrong."""
        frequency = None if fields["frequency"] is None else Frequency.of(fields["frequency"])
        time, id_name = (None if fields[name] is None else str(fields[name]) for name in ("time", "id"))
        past, known, features = (_texts(fields[name], name) for name in ("past", "known", "calendar"))
        levels = {name: _texts(level, f"levels of {name}") for name, level in fields["levels"].items()}
        means, deviations = (tuple(map(float, fields[name])) for name in ("means", "deviations"))
        names = str(fields["target"]), time, id_name, past, known, features
        layout = cls(*names, levels, frequency, means, deviations)
        if not len(means) == len(deviations) == layout.size <= MAX_INPUTS:
            raise ValueError(f"a layout must have a mean and a deviation for each input, and at most {MAX_INPUTS}")
        if not all(map(math.isfinite, (*means, *deviations))) or min(deviations, default=1) <= 0:
            raise ValueError("means of a layout must be finite, deviations finite and positive")
        if len({*past, *known}) < len(past) + len(known) or not set(levels) <= {*past, *known}:
            raise ValueError("inputs of a layout must be different columns, and levels must be of inputs")
        if (time is None) != (frequency is None) or not set(features) <= set(_calendar_names(frequency)):
            raise ValueError("times of a layout need a frequency, and its calendar must be that of the frequency")
        return layout


def _texts(values: object, what: str) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{what} of a layout must be a list of texts")
    return tuple(values)


def _calendar_names(frequency: Frequency | None) -> tuple[str, ...]:
    return () if frequency is None else tuple(calendar(np.array(["2000-01-01"], "datetime64[us]"), frequency))


def find_layout(table: Table, options: Options) -> Layout:
    """Find what the columns of a table are, from the user's options and from their content."""
    target = str(options["target"])
    if table[target].kind == "empty":
        raise DataError(table.path, f"column {target!r} has no values, only missing ones")
    table[target].numbers()
    id_name = options.get("id")
    time = _time_column(table, options.get("time"), {target, id_name})
    taken = {target, time, id_name}
    known = _listed(table, options.get("known"), taken)
    past = _listed(table, options.get("columns"), taken | set(known))
    levels = {name: _levels(table[name]) for name in (*past, *known) if table[name].kind != "number"}
    frequency = None
    if time is not None:
        frequency = Frequency.of(options["frequency"]) if options.get("frequency") else _frequency(table, time, id_name)
    if options.get("calendar") and frequency is None:
        raise DataError(table.path, "has no column of times, which the calendar needs")
    features = _calendar_names(frequency) if options.get("calendar") else ()
    layout = Layout(target, time, id_name, past, known, features, levels, frequency)
    if layout.size > MAX_INPUTS:
        raise DataError(table.path, f"must give at most {MAX_INPUTS} inputs, gives {layout.size}; name fewer columns")
    return layout


def _time_column(table: Table, given: str | None, others: set[str | None]) -> str | None:
    if given is not None:
        table[given]
        return given
    rest = [column for column in table if column.name not in others]
    times = [column for column in rest if column.kind == "time"]
    named = [column for column in rest if column.kind == "number" and column.name.lower() in TIME_NAMES]
    times += [column for column in named if _from_numbers(column) is not None]
    return times[0].name if times else None


def _listed(table: Table, names: str | None, taken: set[str | None]) -> tuple[str, ...]:
    """Return the named columns; `all` are those of numbers and categories that are not taken."""
    if not names:
        return ()
    if names == ALL:
        return tuple(each.name for each in table if each.name not in taken and each.kind in ("number", "category"))
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name in taken:
            raise ValueError(f"column {name!r} is given twice, or is the target, the time or the id")
        if table[name].kind not in ("number", "category"):
            raise DataError(table.path, f"column {name!r} must have numbers or categories, has {table[name].kind}")
    return tuple(dict.fromkeys(chosen))


def _levels(column: Column) -> tuple[str, ...]:
    levels = sorted(set(column.texts()) - {""})
    if len(levels) > MAX_LEVELS:
        many = f"must have at most {MAX_LEVELS} categories, has {len(levels)}"
        raise DataError(column.file, f"column {column.name!r} {many}")
    return tuple(levels)


def times_of(column: Column) -> Times:
    """Return the times of a column, which may also be years, dates such as 20260131, or seconds since 1970."""
    times = _from_numbers(column) if column.kind == "number" else column.times()
    if times is None:
        seen = "some are missing" if column.missing.any() else f"got {column.cells[0]}"
        reason = f"column {column.name!r} must have times, years, dates such as 20260131 or seconds since 1970; {seen}"
        raise DataError(column.file, reason)
    return times


def _from_numbers(column: Column) -> Times | None:
    numbers = column.numbers()
    if column.missing.any() or (numbers % 1 != 0).any():
        return None
    whole = numbers.astype(np.int64)
    low, high = int(whole.min()), int(whole.max())
    if YEARS[0] <= low and high <= YEARS[1]:
        return (whole - 1970).astype("datetime64[Y]").astype("datetime64[us]")
    if YEARS[0] * 10**4 <= low and high <= YEARS[1] * 10**4:
        times, wrong = parse([str(number) for number in whole.tolist()])
        return times if wrong is None else None
    for factor in (1, 10**3):
        if UNIX[0] * factor <= low and high <= UNIX[1] * factor:
            return (whole * (10**6 // factor)).astype("datetime64[us]")
    return None


def _frequency(table: Table, time: str, id_name: str | None) -> Frequency:
    """Find the frequency of the longest series."""
    times = times_of(table[time])
    if id_name is not None:
        ids = np.array(table[id_name].texts())
        names, counts = np.unique(ids, return_counts=True)
        times = times[ids == names[counts.argmax()]]
    times = np.unique(times)
    if len(times) < 2:
        raise DataError(table.path, f"column {time!r} must have at least two different times, got {len(times)}")
    frequency = frequency_of(times)
    if frequency is None:
        steps = np.diff(times).astype("timedelta64[s]")
        uneven = f"has uneven times (from {steps.min()} to {steps.max()} apart)"
        raise DataError(table.path, f"column {time!r} {uneven}; give {option('frequency')}, such as h or D, to average")
    return frequency
