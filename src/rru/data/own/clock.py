"""The column that puts the rows of series in order: times, or integers that count steps."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own.table import Column, Table
from rru.data.own.times import Frequency, Times, Whens, frequency_of, parse
from rru.data.spelling import option

TIME_NAMES = ("date", "time", "datetime", "timestamp", "year", "day", "ds", "t")
STEP_NAMES = ("step", "steps")
COUNTER_NAMES = (*TIME_NAMES, *STEP_NAMES, "period", "index")
YEARS, UNIX = (1000, 2999), (10**9, 4 * 10**9)
MAX_COUNT = 10**15  # of a step, and of what lies between two steps: floats hold it exactly
SPARSE = 20  # a column of which less than one step in so many is there counts something else

Integers = NDArray[np.int64]


class Clock(NamedTuple):
    """How the steps of series are told apart.

    **Arguments:**

    - `time`: the column of times or of integers that count steps; None if rows are in order.
    - `frequency`: the time between steps; None if it is not known.
    - `step`: how much the integers grow from one step to the next; None for times.
    """

    time: str | None
    frequency: Frequency | None
    step: int | None = None


def find_clock(table: Table, options: Mapping[str, Any]) -> Clock:
    """Find the column that orders the rows, from the user's options, else from content and names."""
    frequency = Frequency.of(options["frequency"]) if options.get("frequency") else None
    time, id_name = options.get("time"), options.get("id")
    if time is None and (time := _guessed(table, options, frequency)) is None:
        return Clock(None, frequency)
    if counts_steps(table[time], frequency):
        return Clock(time, frequency, _step(table, time, id_name))
    return Clock(time, frequency or _frequency(table, time, id_name))


def _guessed(table: Table, options: Mapping[str, Any], frequency: Frequency | None) -> str | None:
    """Return the first column of times, else of years, dates or seconds, else that clearly counts steps."""
    inputs = {name.strip() for key in ("columns", "known") for name in (options.get(key) or "").split(",")}
    rest = [column for column in table if column.name not in (options["target"], options.get("id"))]
    if times := [column.name for column in rest if column.kind == "time"]:
        return times[0]
    numbers = [column for column in rest if column.kind == "number" and column.name.lower() in COUNTER_NAMES]
    dated = [column.name for column in numbers if column.name.lower() in TIME_NAMES and _are_dates(column, frequency)]
    counting = [column for column in numbers if column.name not in inputs and counts_steps(column, frequency)]
    return next(iter([*dated, *(each.name for each in counting if _is_clear(table, each, options.get("id")))]), None)


def _are_dates(column: Column, frequency: Frequency | None) -> bool:
    whole = _integers(column)
    return whole is not None and _dates(column, whole, years=_may_be_years(column, frequency)) is not None


def counts_steps(column: Column, frequency: Frequency | None) -> bool:
    """Return whether a column has integers that are no years, dates such as 20260131, or seconds since 1970."""
    whole = _integers(column) if column.kind == "number" else None
    return whole is not None and _dates(column, whole, years=_may_be_years(column, frequency)) is None


def times_of(column: Column, frequency: Frequency | None = None) -> Times:
    """Return the times of a column, which may also be years, dates such as 20260131, or seconds since 1970."""
    if column.kind != "number":
        return column.times(frequency)
    whole = _integers(column)
    times = None if whole is None else _dates(column, whole, years=True)
    if times is None:
        seen = "some are missing" if column.missing.any() else f"got {column.cells[0]}"
        reason = f"column {column.name!r} must have times, years, dates such as 20260131 or seconds since 1970; {seen}"
        raise DataError(column.file, reason)
    return times


def whens_of(column: Column, step: int | None, frequency: Frequency | None = None) -> Whens:
    """Return the times of a column, or its integers if it counts steps; raise DataError if it has others."""
    if step is None:
        return times_of(column, frequency)
    whole = _integers(column) if column.kind == "number" else None
    if whole is None:
        right = f"must have integers, of which {step} is one step"
        seen = "some are missing" if column.missing.any() else f"got {column.kind}s such as {column.cells[0]}"
        raise DataError(column.file, f"column {column.name!r} {right}; {seen}")
    return whole


def groups_of(table: Table, id_name: str | None) -> tuple[list[str], Integers]:
    """Return the sorted names of the series in a table, and the number (rows,) of each row's series among them."""
    if id_name is None:
        return [""], np.zeros(len(table), np.int64)
    texts, numbers = table[id_name].groups
    names = sorted(set(texts))
    places = {name: place for place, name in enumerate(names)}
    return names, np.array([places[text] for text in texts], np.int64)[numbers]


def _integers(column: Column) -> Integers | None:
    """Return a column of numbers as integers; None if some are missing, fractions or too large."""
    try:
        numbers = column.numbers()
    except DataError:  # an infinite number, which is said where the column is used
        return None
    if column.missing.any() or (numbers % 1 != 0).any() or (np.abs(numbers) > MAX_COUNT).any():
        return None
    return numbers.astype(np.int64)


def _may_be_years(column: Column, frequency: Frequency | None) -> bool:
    """Return whether integers from 1000 to 2999 are years: not if steps are shorter, or the column is named `step`."""
    yearly = frequency is None or (frequency.unit == "M" and frequency.count % 12 == 0)
    return yearly and column.name.lower() not in STEP_NAMES


def _dates(column: Column, whole: Integers, *, years: bool) -> Times | None:
    """Return the times that integers are, `years` among them; None if they count steps."""
    low, high = int(whole.min()), int(whole.max())
    if years and YEARS[0] <= low and high <= YEARS[1]:
        return (whole - 1970).astype("datetime64[Y]").astype("datetime64[us]")
    if YEARS[0] * 10**4 <= low and high <= YEARS[1] * 10**4:
        return _written_dates(column, whole)
    for factor in (1, 10**3):
        if UNIX[0] * factor <= low and high <= UNIX[1] * factor:
            return (whole * (10**6 // factor)).astype("datetime64[us]")
    return None


def _written_dates(column: Column, whole: Integers) -> Times | None:
    """Return the times of integers such as 20260131; None if neither the first nor the last is a date."""
    different, numbers = np.unique(whole, return_inverse=True)
    texts = [str(number) for number in different.tolist()]
    times, wrong = parse(texts)
    if wrong is None:
        return times[numbers]
    if any(parse([text])[1] is None for text in (texts[0], texts[-1])):
        row = int((numbers == wrong).argmax())
        raise column.error(row, f"column {column.name!r} must have dates such as 20260131, got {texts[wrong]}")
    return None


def _frequency(table: Table, time: str, id_name: str | None) -> Frequency:
    """Find the frequency of the longest series."""
    times = times_of(table[time])
    names, series = groups_of(table, id_name)
    times = np.unique(times[series == np.bincount(series, minlength=len(names)).argmax()])
    if len(times) < 2:
        raise DataError(table.path, f"column {time!r} must have at least two different times, got {len(times)}")
    frequency = frequency_of(times)
    if frequency is None:
        steps = np.diff(times).astype("timedelta64[s]")
        uneven = f"has uneven times (from {steps.min()} to {steps.max()} apart)"
        raise DataError(table.path, f"column {time!r} {uneven}; give {option('frequency')}, such as h or D, to average")
    return frequency


def _differences(whole: Integers, series: Integers) -> Integers:
    """Return the differences of neighbours in each series, sorted."""
    order = np.lexsort((whole, series))
    return np.asarray(np.diff(whole[order])[np.diff(series[order]) == 0])


def _step(table: Table, time: str, id_name: str | None) -> int:
    """Return by how much integers grow from one step to the next: what divides the differences in every series."""
    names, series = groups_of(table, id_name)
    whole = whens_of(table[time], 1).astype(np.int64)
    differences = _differences(whole, series)
    if not differences.any():
        raise DataError(table.path, f"column {time!r} must have at least two different steps in a series")
    step = int(np.gcd.reduce(differences))
    spanned = int(differences.sum()) // step + len(names)
    if spanned > SPARSE * len(table):
        few = f"has only {len(table):,} of the {spanned:,} steps from {whole.min()} to {whole.max()}"
        raise DataError(table.path, f"column {time!r} {few}; are these times? They must be dates or number every step")
    return step


def _is_clear(table: Table, column: Column, id_name: str | None) -> bool:
    """Return whether integers clearly count the steps of every series: they grow, and do not number all the rows."""
    names, series = groups_of(table, id_name)
    whole = whens_of(column, 1).astype(np.int64)
    order = np.argsort(series, kind="stable")
    growth = np.diff(whole[order])[np.diff(series[order]) == 0]
    if not len(growth) or growth.min() <= 0:
        return False
    if len(names) > 1 and len(np.unique(whole)) == len(whole):
        return False
    return int(growth.sum()) // int(np.gcd.reduce(growth)) + len(names) <= SPARSE * len(table)
