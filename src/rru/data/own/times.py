"""Times of series: read timestamps, find their frequency, and make calendar features."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.datetime64]
"""Times (N,) without zone, in microseconds."""
Whens = Times | NDArray[np.int64]
"""Times (N,), or integers that count steps."""
When = np.datetime64 | np.int64
"""A time, or an integer that counts steps."""

EXAMPLES = "2026-01-31, 2026-01-31 13:00 or 2026-01"
_ISO = re.compile(r"(\d{4}-\d\d(?:-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.]\d{1,6})?\d*)?)?)?) ?(Z|UTC|[+-]\d\d(?::?\d\d)?)?")
_QUARTER = re.compile(r"(\d{4})[ -]?[Qq]([1-4])")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", "T%H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_DAYS = ("%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y%m%d", "%d %b %Y", "%b-%d-%Y")
_WORDED = ("%b %d %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%m/%d/%y", "%d/%m/%y")
_FORMATS = [day + clock for day in (*_DAYS, *_WORDED) for clock in _CLOCKS]
_FORMATS += ["%b %Y", "%Y %b", "%B %Y", "%Y %B", "%b-%Y", "%b-%y", "%Y/%m", "%m/%Y"]
_UNITS = {"us": 1, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6, "D": 86400 * 10**6, "W": 7 * 86400 * 10**6}
_MONTHS = {"M": 1, "Q": 3, "Y": 12}
_NAMES = {
    "us": "microsecond",
    "s": "second",
    "min": "minute",
    "h": "hour",
    "D": "day",
    "B": "business day",
    "W": "week",
    "M": "month",
    "Q": "quarter",
    "Y": "year",
}
DAY = _UNITS["D"]
_MONTH = 31 * DAY
_YEAR = 1461 * DAY // 4
MAX_STEP = 10_000 * 366 * DAY  # of the time between steps, in microseconds


def is_time(text: str) -> bool:
    """Return whether a text is a time in one of the forms that `parse` reads; digits alone are a number."""
    return not text.isdigit() and parse([text])[1] is None


def parse(texts: Sequence[str], frequency: "Frequency | None" = None) -> tuple[Times, int | None]:
    """Read times that are all written alike. Times with a zone are converted to UTC.

    If day and month can be told apart in two ways, those times are returned that leave the fewest steps out, every
    `frequency` or, if it is None, at the frequency that each way gives.

    **Returns:** the times (N,), and the row of the first text that is not a time, or None if all are.
    """
    for pattern, read in ((_ISO, _from_iso), (_QUARTER, _from_quarter)):
        if pattern.fullmatch(texts[0]):
            return _read_all(texts, read)
    best: tuple[Times, int | None] = (_times([]), 0)
    readings = list[Times]()
    for form in _FORMATS:
        times, wrong = _read_all(texts, partial(_from_format, form))
        if wrong is None:
            readings.append(times)
        elif best[1] is not None and wrong > best[1]:
            best = (times, wrong)
    if len(readings) > 1:  # 3/4 is in March or in April
        return min(readings, key=lambda times: (_unevenness(times, frequency), -_evenness(times))), None
    return (readings[0], None) if readings else best


def _times(values: Sequence[object]) -> Times:
    return np.array(values, "datetime64[us]")


def _read_all(texts: Sequence[str], read: Callable[[str], object]) -> tuple[Times, int | None]:
    """Return what `read` makes of each text, and the row of the first for which it raises ValueError."""
    values = []
    for row, text in enumerate(texts):
        try:
            values.append(read(text))
        except ValueError:
            return _times([]), row
    return _times(values), None


def _groups(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(f"must be like the first time, got {text!r}")
    return match.groups()


def _from_iso(text: str) -> np.datetime64:
    moment, zone = _groups(_ISO, text)
    time = np.datetime64(moment.replace(" ", "T"), "us")
    if zone in (None, "Z", "UTC"):
        return time
    digits = zone[1:].replace(":", "").ljust(4, "0")
    minutes = int(digits[:2]) * 60 + int(digits[2:])
    return time - np.timedelta64(minutes if zone[0] == "+" else -minutes, "m")


def _from_quarter(text: str) -> np.datetime64:
    year, quarter = _groups(_QUARTER, text)
    return np.datetime64(f"{year}-{3 * int(quarter) - 2:02d}", "us")


def _from_format(form: str, text: str) -> datetime:
    return datetime.strptime(text, form)


def _unevenness(times: Times, frequency: "Frequency | None") -> float:
    """Return how many steps have no time or several; infinite if times are on no even grid."""
    times = np.unique(times)
    frequency = frequency or frequency_of(times)
    if frequency is None:
        return np.inf if len(times) > 1 else 0.0
    places = np.floor(frequency.positions(times, times[0]) + 1e-9)
    there = len(np.unique(places))
    return float(places[-1] + 1 - there + len(times) - there)


def _evenness(times: Times) -> float:
    """Return the share of the most frequent difference between neighbours."""
    if len(times) < 2:
        return 0.0
    _, counts = np.unique(np.diff(times), return_counts=True)
    return float(counts.max() / counts.sum())


@dataclass(frozen=True)
class Frequency:
    """The time from one step to the next: `count` microseconds (`us`), months (`M`) or business days (`B`)."""

    count: int
    unit: str

    @classmethod
    def of(cls, text: str) -> "Frequency":
        """Read a frequency such as `h`, `30min`, `D`, `B`, `W`, `M`, `Q` or `Y`."""
        match = re.fullmatch(r"([0-9]{0,15})(us|s|min|h|D|B|W|M|Q|Y)", text.strip())
        count = int(match[1] or 1) if match else 0
        unit = match[2] if match else ""
        most = 1 if unit == "B" else MAX_STEP // (_UNITS.get(unit) or _MONTH * _MONTHS.get(unit, 1))
        if not 0 < count <= most:
            raise ValueError(f"frequency must be such as h, 30min, D, B (business days), W, M, Q or Y; got {text!r}")
        if unit in _MONTHS:
            return cls(count * _MONTHS[unit], "M")
        return cls(1, "B") if unit == "B" else cls(count * _UNITS[unit], "us")

    @property
    def _in_largest_unit(self) -> tuple[int, str]:
        units = {"B": {"B": 1}, "M": _MONTHS}.get(self.unit, _UNITS)
        size, name = max((size, name) for name, size in units.items() if self.count % size == 0)
        return self.count // size, name

    @property
    def code(self) -> str:
        """The text that `of` reads."""
        count, unit = self._in_largest_unit
        return f"{count if count > 1 else ''}{unit}"

    def __str__(self) -> str:
        count, unit = self._in_largest_unit
        return f"every {count} {_NAMES[unit]}s" if count > 1 else f"every {_NAMES[unit]}"

    @property
    def seasons(self) -> tuple[int, ...]:
        """The usual numbers of steps after which patterns repeat, shortest first: a day, a week, a year; or none."""
        if self.unit == "B":
            return 5, 261
        if self.unit == "M":
            return (12 // self.count,) if self.count < 12 else ()
        minute, hour, week = (_UNITS[unit] for unit in ("min", "h", "W"))
        cycles = {minute: (minute, hour), 10 * minute: (hour, DAY), DAY: (DAY, week), week: (week, _YEAR)}
        lengths = next((lengths for finer, lengths in cycles.items() if self.count < finer), (_YEAR,))
        steps = [round(length / self.count) for length in lengths if length == _YEAR or length % self.count == 0]
        return tuple(count for count in steps if count > 1 and self.count <= week)

    def positions(self, times: Times, start: np.datetime64) -> NDArray[np.float64]:
        """Return how many steps after `start` each time is; a fraction if it is between two steps."""
        if self.unit == "us":
            return np.asarray((times - start).astype(np.int64) / self.count, np.float64)
        if self.unit == "B":
            days = np.busday_count(start.astype("datetime64[D]"), times.astype("datetime64[D]"))
            return days.astype(np.float64)
        months = (times.astype("datetime64[M]") - start.astype("datetime64[M]")).astype(np.int64)
        return np.asarray(months / self.count, np.float64)

    def times(self, start: np.datetime64, positions: NDArray[np.int64]) -> Times:
        """Return the time of each position. Months that are too short for the day of `start` end on their last day."""
        if self.unit == "us":
            return np.asarray(start + positions * np.timedelta64(self.count, "us"))
        days = start.astype("datetime64[D]")
        clock = start - days
        if self.unit == "B":
            return np.asarray(np.busday_offset(days, positions, roll="forward") + clock)
        month = days.astype("datetime64[M]")
        at_end = (days + 1).astype("datetime64[M]") > month
        months = month + positions * self.count
        last = (months + 1).astype("datetime64[D]") - 1
        same = months.astype("datetime64[D]") + (days - month.astype("datetime64[D]"))
        return np.asarray((last if at_end else np.minimum(same, last)) + clock)


def frequency_of(times: Times) -> Frequency | None:
    """Return the frequency of increasing times, which may have gaps; None if they are not on an even grid."""
    if len(times) < 2:
        return None
    months = times.astype("datetime64[M]")
    within = times - months.astype("datetime64[us]")
    ends = ((times.astype("datetime64[D]") + 1).astype("datetime64[M]") > months).all()
    if (np.diff(months.astype(np.int64)) > 0).all() and (ends or (within == within[0]).all()):
        return Frequency(int(np.gcd.reduce(np.diff(months.astype(np.int64)))), "M")
    steps, counts = np.unique(np.diff(times).astype(np.int64), return_counts=True)
    step = int(steps[counts.argmax()])
    days = times.astype("datetime64[D]")
    if step == DAY and np.is_busday(days).all() and len(times) > 5:
        return Frequency(1, "B")
    return Frequency(step, "us") if (steps % step == 0).all() else None


def shown(whens: Sequence[When]) -> list[str]:
    """Return times as a reader writes them, such as 2026-01-31 or 2026-01-31 13:00, or integers, all alike."""
    if not all(isinstance(when, np.datetime64) for when in whens):
        return [str(when) for when in whens]
    times = _times(whens)
    unit = next(unit for unit in ("D", "m", "s", "us") if (times == times.astype(f"datetime64[{unit}]")).all())
    return [str(time).replace("T", " ") for time in times.astype(f"datetime64[{unit}]")]


def calendar(times: Times, frequency: Frequency) -> dict[str, NDArray[np.float64]]:
    """Return hour, weekday and time of the year of each time, by name, as far as they vary at this frequency."""
    features: dict[str, NDArray[np.float64]] = {}
    days = times.astype("datetime64[D]")
    if frequency.unit == "us" and frequency.count < DAY:
        features |= _circle("hour", (times - days).astype(np.int64) / DAY)
    if frequency.unit == "B" or (frequency.unit == "us" and frequency.count <= DAY):
        weekday = (days.astype(np.int64) + 3) % 7  # 1970 began on a Thursday
        features |= {f"weekday {day}": (weekday == day).astype(np.float64) for day in range(7)}
    if frequency.unit != "M" or frequency.count < 12:
        years = days.astype("datetime64[Y]")
        features |= _circle("year", (days - years.astype("datetime64[D]")).astype(np.int64) / 365.25)
    return features


def _circle(name: str, part: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    return {f"{name} sin": np.sin(2 * np.pi * part), f"{name} cos": np.cos(2 * np.pi * part)}
