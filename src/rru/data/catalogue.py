"""The catalogue of data sets, read from `catalogue.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

from rru.suggestions import did_you_mean


@dataclass(frozen=True)
class RemoteFile:
    """A file to download.

    **Arguments:**

    - `path`: path relative to the data folder: `music/JSB_Chorales.mat`.
    - `url`: the address it is published at.
    - `hash`: hash of the downloaded file, `sha256:…` or `md5:…`.
    - `size`: bytes of the downloaded file, or None if unknown.
    - `content`: hash of the decompressed content, which verifies a file in another compression too.
    - `content_size`: bytes of the decompressed content, or None if it is not a single stream.
    """

    path: str
    url: str
    hash: str
    size: int | None = None
    content: str | None = None
    content_size: int | None = None

    @property
    def name(self) -> str:
        """The file name without folders."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class DataSet:
    """A data set in the catalogue: description, source, licence and counts.

    **Arguments:**

    - `name`: the name that `rru.data.load` takes.
    - `title`: the usual name.
    - `kind`: `music`, `words`, `characters`, `bytes`, `reviews` or `images`.
    - `description`: what it contains, and what to know before using it.
    - `licence`: the known terms of use.
    - `citation`: the work to cite.
    - `files`: the files to download; empty for a data set that ships with the package.
    - `statistics`: counts by name: one number, or a list for train, valid and test.
    - `view_of`: the data set whose files this one shares, or an empty string.
    """

    name: str
    title: str
    kind: str
    description: str
    licence: str
    citation: str
    files: tuple[RemoteFile, ...]
    statistics: Mapping[str, int | list[int]]
    view_of: str = ""

    @property
    def embedded(self) -> bool:
        """Whether the data set ships with the package."""
        return not self.files

    @property
    def size(self) -> int | None:
        """Bytes to download, or None if the size of a file is unknown."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def _read() -> dict[str, DataSet]:
    text = resources.files("rru.data").joinpath("catalogue.toml").read_text(encoding="utf-8")
    tables: dict[str, dict[str, Any]] = tomllib.loads(text)
    catalogue: dict[str, DataSet] = {}
    for name, table in tables.items():
        base = tables[table["view_of"]] if "view_of" in table else {}
        fields = {**base, **table}
        files = tuple(RemoteFile(**file) for file in fields.pop("files", ()))
        statistics = MappingProxyType(fields.pop("statistics"))
        catalogue[name] = DataSet(name=name, files=files, statistics=statistics, **fields)
    return catalogue


CATALOGUE: Mapping[str, DataSet] = MappingProxyType(_read())


def data_set(name: str) -> DataSet:
    """Return a data set of the catalogue."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    raise ValueError(f"name must be one of {', '.join(CATALOGUE)}; got {name!r}{did_you_mean(name, CATALOGUE)}")
