"""What a run or export keeps about the user's own data, in data.json. Anyone may have written it, so it is checked."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rru.data.own.columns import Layout
from rru.data.own.scaling import BASES, JSON, ColumnScale, Scaling, Values
from rru.data.own.times import Frequency

MAX_WINDOW = 1 << 20  # steps of context and horizon: a window of more takes gigabytes
MAX_SEASON = 10**7  # steps
BEATS_PER_BAR = 4.0

Statistics = Mapping[str, Any]
"""Counts by name, as in the catalogue: one number, or a list for train, valid and test."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known about data of any kind.

    **Arguments:**

    - `statistics`: counts by name.
    - `summary`: what was understood, in one line.
    - `notes`: what the user should know: what was left out, copies in several splits, and so on.
    """

    statistics: Statistics
    summary: str
    notes: tuple[str, ...]

    @classmethod
    def of(cls, given: JSON) -> Self:
        """Read the facts from JSON values; raise ValueError if a model cannot be used with them."""
        try:
            return cls(**cls._values(given))
        except KeyError as error:
            raise ValueError(f"{error} is missing") from error
        except (TypeError, AttributeError, ArithmeticError) as error:
            raise ValueError(f"a value has another type ({error})"[:200]) from error

    @classmethod
    def _values(cls, given: JSON) -> JSON:
        """Return the arguments of the constructor. No model needs these three, so other types are left out."""
        statistics, notes = given.get("statistics"), given.get("notes")
        return {
            "statistics": statistics if isinstance(statistics, dict) else {},
            "summary": str(given.get("summary", "")),
            "notes": tuple(map(str, notes)) if isinstance(notes, list | tuple) else (),
        }

    def fields(self) -> dict[str, object]:
        """Return JSON values."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}


@dataclass(frozen=True, kw_only=True)
class MusicFacts(Facts):
    """Facts about music: `beats_per_bar` of most pieces, in quarter notes."""

    beats_per_bar: float = BEATS_PER_BAR

    @classmethod
    def _values(cls, given: JSON) -> JSON:
        beats = given.get("beats_per_bar")
        known = isinstance(beats, int | float) and 0.25 <= beats <= 64
        return {**super()._values(given), "beats_per_bar": beats if known else BEATS_PER_BAR}


@dataclass(frozen=True, kw_only=True)
class LabelFacts(Facts):
    """Facts about labelled items: `classes`, and how many items of each every split has."""

    classes: tuple[str, ...]
    balance: Mapping[str, list[int]]

    @classmethod
    def _values(cls, given: JSON) -> JSON:
        balance = given.get("balance")
        labels = {"classes": _names(given, "classes"), "balance": balance if isinstance(balance, dict) else {}}
        return {**super()._values(given), **labels}


@dataclass(frozen=True, kw_only=True)
class SequenceFacts(LabelFacts):
    """Facts about labelled sequences of numbers: `columns`, their `scale`, and whether each row was a sequence."""

    columns: tuple[str, ...]
    scale: ColumnScale
    wide: bool

    @classmethod
    def _values(cls, given: JSON) -> JSON:
        columns = _names(given, "columns")
        scale = ColumnScale.from_fields(given["scale"], len(columns))
        return {**super()._values(given), "columns": columns, "scale": scale, "wide": bool(given.get("wide"))}


@dataclass(frozen=True, kw_only=True)
class SeriesFacts(Facts):
    """Facts about series.

    **Arguments:**

    - `layout`: what the columns of a table are.
    - `series`: the scaling of each series, by name; at least one.
    - `horizon`, `season`: steps.
    - `base`: the simple forecast that a model of version 0.2 starts from; empty for later ones.
    - `starts`: the time of the first step of each series, such as `2026-01-31T13:00`; empty without times.
    - `longer_seasons`: further numbers of steps after which a pattern repeats, such as a week of hours.
    - `splits`: of each series, where validation and test begin and where it ends, in steps; empty in older files.
    """

    layout: Layout
    series: Mapping[str, Scaling]
    horizon: int
    season: int
    base: str = ""
    starts: tuple[str, ...] = ()
    longer_seasons: tuple[int, ...] = ()
    splits: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def _values(cls, given: JSON) -> JSON:
        scalings = {str(name): Scaling.from_fields(values) for name, values in given["series"].items()}
        if not scalings:
            raise ValueError("series must have at least one scaling")
        if given["base"] not in ("", *BASES):
            raise ValueError(f"base must be {', '.join(BASES)} or empty, got {given['base']!r}"[:200])
        longer = given.get("longer_seasons", ())
        return {
            **super()._values(given),
            "layout": Layout.from_fields(given["layout"]),
            "series": scalings,
            "horizon": _count(given, "horizon", MAX_WINDOW),
            "season": _count(given, "season", MAX_SEASON),
            "base": given["base"],
            "starts": tuple(map(str, given.get("starts", ()))),
            "longer_seasons": tuple(_count({"longer_seasons": each}, "longer_seasons", MAX_SEASON) for each in longer),
            "splits": _splits(given.get("splits", ()), len(scalings)),
        }

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(self.series)}

    def number(self, name: str) -> int:
        """Return the place of a series among those of training; -1 if it was not there."""
        return self._numbers.get(name, -1)

    @property
    def filling_season(self) -> int:
        """The season that missing values are filled from; models of version 0.2 read the value before."""
        return 1 if self.base else self.season

    def scaling(self, name: str, values: Values, observed: NDArray[np.bool_] | None = None) -> Scaling:
        """Return the scaling of a series; one that was not there in training is scaled by its own values (T,).

        **Arguments:** `values`: with missing ones filled; `observed`: (T,), which are known; None if all are.
        """
        if name in self.series:
            return self.series[name]
        if self.base:
            return Scaling.stepwise(values, self.season, self.horizon, self.base, log=self._log_unit is not None)
        own = Scaling.of(values, self.season, observed)
        return own if self._log_unit is None or own.floor is None else replace(own, unit=self._log_unit)

    @cached_property
    def _log_unit(self) -> float | None:
        """The unit of the series on a logarithmic scale; None if there are none."""
        return next((scaling.unit for scaling in self.series.values() if scaling.floor is not None), None)


def _plain(value: object) -> object:
    """Return a value of facts as JSON values."""
    if isinstance(value, Frequency):
        return value.code
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _splits(given: object, count: int) -> tuple[tuple[int, int, int], ...]:
    """Return where the parts of each series begin and end; raise ValueError if they are not of `count` series."""
    rows = [tuple(row) for row in given if isinstance(row, list | tuple)] if isinstance(given, list | tuple) else []
    if not given:
        return ()
    right = all(
        len(row) == 3 and all(type(each) is int for each in row) and 0 < row[0] <= row[1] <= row[2] for row in rows
    )
    if len(rows) != count or not right:
        raise ValueError("splits must have three increasing numbers of steps for each series")
    return tuple((valid, test, end) for valid, test, end in rows)


def _names(given: JSON, key: str) -> tuple[str, ...]:
    names = given[key]
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{key} must be a list of names")
    if len(set(names)) < len(names):
        raise ValueError(f"{key} must be different names")
    return tuple(names)


def _count(given: JSON, key: str, most: int) -> int:
    value = given[key]
    if type(value) is not int or not 0 < value <= most:
        raise ValueError(f"{key} must be from 1 to {most}, got {value!r}"[:200])
    return value
