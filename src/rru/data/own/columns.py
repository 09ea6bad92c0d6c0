"""The columns of a table of series: which is the target, the time, the id, and which are inputs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own.clock import MAX_COUNT, find_clock, whens_of
from rru.data.own.scaling import JSON, ColumnScale
from rru.data.own.table import Column, Table
from rru.data.own.times import Frequency, When, Whens, calendar

ALL = "all"
Options = Mapping[str, Any]
"""How to read a user's data, by name; those at their default are left out."""
MAX_LEVELS = 50  # categories of an input
MAX_INPUTS = 500


@dataclass(frozen=True)
class Layout:
    """What the columns of a table are; a run keeps it, to read new data in the same way.

    **Arguments:**

    - `target`: the column to forecast.
    - `time`, `id`: the columns with times, or integers that count steps, and names of series; None if there is none.
    - `past`, `known`: input columns; those in `known` are known in advance.
    - `calendar`: the inputs that are made of the times, such as `hour sin`.
    - `levels`: the categories of the input columns that are not numbers.
    - `frequency`: the time between steps; None if it is not known, as for integers or without times.
    - `means`, `deviations`: of each input, from the training part.
    - `step`: by how much integers in `time` grow from one step to the next; None for times.
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
    step: int | None = None

    @property
    def past_size(self) -> int:
        """The number of inputs that are not known in advance; they come first."""
        return sum(len(self.levels.get(name, "1")) for name in self.past)

    @property
    def input_names(self) -> list[str]:
        """The input columns, and `calendar`; after the last of those that are known in advance it says so."""
        names, count = [*self.past, *self.known], len(self.known)
        if count:
            names[-1] += " (known in advance)" if count == 1 else f" (these {count} known in advance)"
        return [*names, "calendar"] if self.calendar else names

    @property
    def size(self) -> int:
        """The number of inputs; a category has one for each of its levels."""
        return sum(len(self.levels.get(name, "1")) for name in (*self.past, *self.known)) + len(self.calendar)

    @property
    def rate(self) -> str:
        """What is known about the steps, in words."""
        every = "" if self.frequency is None else str(self.frequency)
        if self.step is not None:
            counted = f"steps {f'of {self.step:,} ' if self.step > 1 else ''}counted by {self.time!r}"
            return f"{every}, {counted}" if every else counted
        if self.time is None:
            return f"{every}, in the order of the file" if every else "steps without times"
        return every

    def whens(self, table: Table) -> Whens | None:
        """Return the times (rows,) of a table, or the integers that count its steps; None if it has neither."""
        return None if self.time is None else whens_of(table[self.time], self.step, self.frequency)

    def positions(self, whens: Whens, start: When) -> NDArray[np.float64]:
        """Return how many steps after `start` each time is; a fraction if it is between two steps."""
        if self.step is not None:
            return np.asarray((whens.astype(np.int64) - int(start)) / self.step, np.float64)
        assert self.frequency is not None and isinstance(start, np.datetime64)  # noqa: PT018 (of all with times)
        return self.frequency.positions(whens.astype("datetime64[us]"), start)

    def whens_at(self, start: When, positions: NDArray[np.int64]) -> Whens:
        """Return the time of each position, or the integer that counts it."""
        if self.step is not None:
            return np.asarray(int(start) + positions * self.step, np.int64)
        assert self.frequency is not None and isinstance(start, np.datetime64)  # noqa: PT018 (of all with times)
        return self.frequency.times(start, positions)

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
        layout = cls(*names, levels, frequency, means, deviations, fields.get("step"))
        if not len(means) == len(deviations) == layout.size <= MAX_INPUTS:
            raise ValueError(f"a layout must have a mean and a deviation for each input, and at most {MAX_INPUTS}")
        if not all(map(math.isfinite, (*means, *deviations))) or min(deviations, default=1) <= 0:
            raise ValueError("means of a layout must be finite, deviations finite and positive")
        if len({*past, *known}) < len(past) + len(known) or not set(levels) <= {*past, *known}:
            raise ValueError("inputs of a layout must be different columns, and levels must be of inputs")
        layout._check_times()
        return layout

    def _check_times(self) -> None:
        """Raise ValueError if time, frequency, step and calendar do not fit together."""
        if self.step is not None and (type(self.step) is not int or not 0 < self.step <= MAX_COUNT):
            raise ValueError(f"step of a layout must be an integer from 1 to {MAX_COUNT}, or null")
        dated = self.time is not None and self.step is None
        if (dated and self.frequency is None) or (self.time is None and self.step is not None):
            raise ValueError("times of a layout need a frequency or a step, and a step needs times")
        if not set(self.calendar) <= set(_calendar_names(self.frequency if dated else None)):
            raise ValueError("calendar of a layout must be that of its frequency, and needs dates")


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
    time, frequency, step = find_clock(table, options)
    taken = {target, time, id_name}
    known = _listed(table, options.get("known"), taken)
    past = _listed(table, options.get("columns"), taken | set(known))
    levels = {name: _levels(table[name]) for name in (*past, *known) if table[name].kind != "number"}
    if options.get("calendar") and (time is None or step is not None):
        no_dates = "has no column of times" if time is None else f"column {time!r} counts steps and has no dates"
        raise DataError(table.path, f"{no_dates}, which the calendar needs")
    features = _calendar_names(frequency) if options.get("calendar") else ()
    layout = Layout(target, time, id_name, past, known, features, levels, frequency, step=step)
    if layout.size > MAX_INPUTS:
        raise DataError(table.path, f"must give at most {MAX_INPUTS} inputs, gives {layout.size}; name fewer columns")
    return layout


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
