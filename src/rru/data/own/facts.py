"""Checks what a run or export keeps about the user's own data in data.json, which may come from anyone."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rru.data.own.columns import Layout
from rru.data.own.scaling import BASES, Scaling

LONGEST_WINDOW = 1 << 20  # steps of context and horizon: a window of more takes gigabytes
LONGEST_SEASON = 10**7  # steps


@dataclass(frozen=True)
class SeriesFacts:
    """What is known about series; see `rru.data.own.series.prepare`.

    **Arguments:**

    - `layout`: what the columns of a table are.
    - `scalings`: the scaling of each series, by name; at least one.
    - `horizon`, `season`: steps.
    - `base`: the simple forecast that the model starts from.
    """

    layout: Layout
    scalings: Mapping[str, Scaling]
    horizon: int
    season: int
    base: str

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> "SeriesFacts":
        """Reads the facts; raises ValueError if they are something else."""
        with _value_errors():
            scalings = {str(name): Scaling.from_fields(fields) for name, fields in about["series"].items()}
            horizon, season = _count(about, "horizon", LONGEST_WINDOW), _count(about, "season", LONGEST_SEASON)
            if not scalings:
                raise ValueError("series must have at least one scaling")
            if about["base"] not in BASES:
                raise ValueError(f"base must be {', '.join(BASES)}, got {about['base']!r}"[:200])
            return cls(Layout.from_fields(about["layout"]), scalings, horizon, season, about["base"])


def check(kind: str, about: Mapping[str, Any]) -> None:
    """Raises ValueError if a model of this kind cannot be used with what is known about its data."""
    with _value_errors():
        if kind == "series":
            SeriesFacts.of(about)
        elif kind == "sequences":
            _check_names(about, "classes")
            _check_names(about, "columns")
            _check_scale(about["scale"], len(about["columns"]))
        elif kind == "texts":
            _check_names(about, "classes")


@contextmanager
def _value_errors() -> Iterator[None]:
    """Turns what a value of another type raises into ValueError."""
    try:
        yield
    except KeyError as error:
        raise ValueError(f"{error} is missing") from error
    except (TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"a value has another type ({error})"[:200]) from error


def _check_names(about: Mapping[str, Any], what: str) -> None:
    names = about[what]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{what} must be a list of names")
    if len(set(names)) < len(names):
        raise ValueError(f"{what} must be different names")


def _check_scale(scale: Mapping[str, Sequence[float]], size: int) -> None:
    for name in ("mean", "deviation"):
        numbers = scale[name]
        if not isinstance(numbers, list) or len(numbers) != size:
            raise ValueError(f"scale must have one {name} for each of {size} columns")
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError(f"scale must have finite numbers as {name}")
    if min(scale["deviation"]) <= 0:
        raise ValueError("scale must have positive deviations")


def _count(about: Mapping[str, Any], what: str, most: int) -> int:
    value = about[what]
    if type(value) is not int or not 0 < value <= most:
        raise ValueError(f"{what} must be from 1 to {most}, got {value!r}"[:200])
    return value
