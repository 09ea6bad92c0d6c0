"""Check the options of reading a user's data, as they are given in Python."""

import operator
import os
from collections.abc import Iterable
from typing import Any, SupportsIndex

from rru.data.spelling import option

WHOLE = ("horizon", "season", "grid", "vocabulary")
"""Options that are whole numbers."""
SPLITS = ("valid", "test")
"""Options that are files or folders."""
LISTS = ("columns", "known")
"""Options that name columns; a list of names is also accepted."""


def checked(name: str, value: Any) -> Any:
    """Return the value of an option: a whole number as an int, several names as a text with commas between them."""
    if name in WHOLE:
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise TypeError(f"{option(name)} must be a whole number, got {value!r} of type {type(value).__name__}")
        return operator.index(value)
    if name in LISTS and not isinstance(value, str):
        names = [str(each) for each in value] if isinstance(value, Iterable) else []
        if not names or any("," in each for each in names):
            right = "one or more names of columns, without commas in them"
            raise ValueError(f"{option(name)} must be {right}; got {value!r}")
        return ",".join(names)
    if name in SPLITS and not isinstance(value, str | os.PathLike):
        right = "a file or folder; beside a DataFrame also a DataFrame"
        raise TypeError(f"{option(name)} must be {right}; got {type(value).__name__}")
    return value
