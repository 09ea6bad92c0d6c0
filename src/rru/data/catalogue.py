"""The catalogue: every data set of the paper as data, read from `catalogue.toml`."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class RemoteFile:
    """A file as its source gives it out.

    **Arguments:**

    - `path`: where it lies, relative to the data folder: `music/JSB_Chorales.mat`.
    - `url`: where it comes from.
    - `hash`: of the file as downloaded, `sha256:…` or `md5:…`.
    - `size`: in bytes as downloaded; None where no source states it.
    - `content`: hash of what a compressed file holds, so that files packed anew can be verified too.
    - `content_size`: in bytes; None where the content is not one stream of bytes.
    """

    path: str
    url: str
    hash: str
    size: int | None = None
    content: str | None = None
    content_size: int | None = None

    @property
    def name(self) -> str:
        """The file's name without folders."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Entry:
    """A data set: what it is, where it comes from, under which terms, and how much of it there is.

    **Arguments:**

    - `name`: as `rru.data.load` takes it.
    - `title`: as people call it.
    - `kind`: `music`, `words`, `characters`, `bytes`, `reviews` or `images`.
    - `description`: what it holds, and what to know before using it.
    - `licence`: what is known of its terms of use.
    - `citation`: whom to cite.
    - `files`: what to download; none for a set inside the package.
    - `statistics`: counts by name; where they count splits, a list of train, valid, test.
    - `view_of`: the set whose files this one reads in another way, or an empty string.
    """

    name: str
    title: str
    kind: str
    description: str
    licence: str
    citation: str
    files: tuple[RemoteFile, ...]
    statistics: Mapping[str, Any]
    view_of: str = ""

    @property
    def embedded(self) -> bool:
        """Whether the set ships inside the package."""
        return not self.files

    @property
    def size(self) -> int | None:
        """Bytes to download; None where a file's size is not known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def _read() -> dict[str, Entry]:
    text = resources.files("rru.data").joinpath("catalogue.toml").read_text(encoding="utf-8")
    tables: dict[str, dict[str, Any]] = tomllib.loads(text)
    entries: dict[str, Entry] = {}
    for name, table in tables.items():
        base = tables[table["view_of"]] if "view_of" in table else {}
        fields = {**base, **table}
        files = tuple(RemoteFile(**file) for file in fields.pop("files", ()))
        statistics = MappingProxyType(fields.pop("statistics"))
        entries[name] = Entry(name=name, files=files, statistics=statistics, **fields)
    return entries


CATALOGUE: Mapping[str, Entry] = MappingProxyType(_read())


def entry(name: str) -> Entry:
    """The data set of that name."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    close = difflib.get_close_matches(str(name).lower().replace("_", "-"), CATALOGUE, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"name must be one of {', '.join(CATALOGUE)}, got {name!r}{hint}")
