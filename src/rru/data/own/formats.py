"""How data of each kind is read, from the catalogue's files and from users' own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rru.data.cache import Prepared
from rru.data.own.columns import Options as Options
from rru.data.own.data_json import Facts
from rru.suggestions import choice

if TYPE_CHECKING:
    from rru.data.folder import Found
    from rru.data.own import OwnData
    from rru.data.sets import Loaded


@dataclass(frozen=True)
class Candidate:
    """A user's file or folder whose kind is to be recognised.

    **Arguments:**

    - `path`: the file or folder.
    - `options`: those that the user gave.
    - `start`: the first four bytes of a file.
    - `suffixes`: of the file, or of the files in a folder, in lower case.
    """

    path: Path
    options: Options
    start: bytes
    suffixes: frozenset[str]


@dataclass(frozen=True)
class Format:
    """How data of a kind is read.

    **Arguments:**

    - `name`: the kind of data, such as `music`.
    - `title`: what it is, in words.
    - `from_prepared`: builds the data set from prepared arrays.
    - `prepare`: builds the arrays from a user's files; `about` of its result has the values of `facts`, and a
      vocabulary, if there is one. None: the kind is for the catalogue alone.
    - `facts`: what a run keeps about a user's data.
    - `suffixes`: of the files that are read from a folder.
    - `options`: the names of the options of a user's data.
    - `complete`: checks the options of a path and adds those that are found in the data.
    - `recognise`: returns whether a file or folder is of this kind. None: only if the user says so.
    - `prepare_set`: builds the arrays of a data set of the catalogue, from its files and the options of `load`.
    - `set_options`: the options of `load`, with their defaults.
    """

    name: str
    title: str
    from_prepared: Callable[[Prepared], Loaded]
    prepare: Callable[[OwnData], Prepared] | None = None
    facts: type[Facts] = Facts
    suffixes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    complete: Callable[[Path, Options], Options] = lambda path, options: options
    recognise: Callable[[Candidate], bool] | None = None
    prepare_set: Callable[[Found, dict[str, bool]], Prepared] | None = None
    set_options: Mapping[str, bool] = field(default_factory=dict)


FORMATS: dict[str, Format] = {}
"""All formats by kind. `rru.data.from_path` asks the last one first whether it recognises a file."""


def format_of(kind: str) -> Format:
    """Return how data of a kind is read; raise ValueError if there is no such kind."""
    return FORMATS[choice("kind", kind, FORMATS)]
