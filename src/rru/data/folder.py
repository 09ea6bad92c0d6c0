"""The data folder: where it is, and which sets lie in it, in whichever of their accepted forms."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pooch

from rru.data.catalogue import Entry, RemoteFile
from rru.data.errors import MissingData


@dataclass(frozen=True)
class Part:
    """One file that a set needs, as it was found.

    **Arguments:**

    - `remote`: what the catalogue says of it.
    - `path`: where it is: a file, or for the form `tree` a folder.
    - `form`: `raw` (as is), `gz`, `zip`, `tar` (also compressed), `tree`, `mat` or `pickle`.
    - `member`: how the wanted member's name ends, for a file inside an archive.
    """

    remote: RemoteFile
    path: Path
    form: str
    member: str = ""

    @property
    def as_published(self) -> bool:
        """Whether the file bears the name it is published under, so that the catalogue's hash should be its own."""
        return self.path.name == self.remote.name


@dataclass(frozen=True)
class Found:
    """A set that is in the data folder.

    **Arguments:**

    - `entry`: the set.
    - `folder`: the data folder.
    - `parts`: one for each of the entry's files, in the same order.
    """

    entry: Entry
    folder: Path
    parts: tuple[Part, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files and folders in use, each once."""
        return tuple(dict.fromkeys(part.path for part in self.parts))


def data_dir(given: Path | str | None = None) -> Path:
    """The data folder: the one given, else the one RRU_DATA_DIR names, else the user's cache folder."""
    if given is not None:
        return Path(given).expanduser()
    named = os.environ.get("RRU_DATA_DIR")
    return Path(named).expanduser() if named else Path(pooch.os_cache("rru"))


def cache_dir() -> Path:
    """Where prepared forms are kept: RRU_CACHE_DIR, else the user's cache folder."""
    named = os.environ.get("RRU_CACHE_DIR")
    return Path(named).expanduser() if named else Path(pooch.os_cache("rru"))


def find(entry: Entry, folder: Path) -> Found:
    """Where the set's files are; raises MissingData if they are not in the folder."""
    found = present(entry, folder)
    if found is None:
        raise MissingData(entry, folder)
    return found


def present(entry: Entry, folder: Path) -> Found | None:
    """Where the set's files are, or None. A set inside the package is always present and has no files."""
    finder = _FINDERS.get(entry.kind, _find_each)
    parts = tuple(finder(entry, folder))
    return Found(entry, folder, parts) if len(parts) == len(entry.files) else None


def _places(entry: Entry, folder: Path) -> Iterator[Path]:
    """The folders a set may lie in: its own, the top, and the few that users make by hand."""
    own = entry.files[0].path.rpartition("/")[0]
    names = (own, "", entry.name, "simple-examples/data", f"{own}/simple-examples/data", "MNIST/raw")
    yield from dict.fromkeys(folder / name for name in names)


def _first(entry: Entry, folder: Path, names: tuple[tuple[str, str], ...]) -> tuple[Path, str] | None:
    """The first of these names, each with its form, that is a file."""
    for name, form in names:
        for place in _places(entry, folder):
            if (place / name).is_file():
                return place / name, form
    return None


def _find_each(entry: Entry, folder: Path) -> Iterator[Part]:
    """Each file by itself: as published, unpacked, or packed with gzip."""
    for remote in entry.files:
        stem = remote.name.removesuffix(".gz").removesuffix(".zip")
        dotted = stem.replace("-idx", ".idx")  # some unpackers write train-images.idx3-ubyte
        names = ((stem, "raw"), (stem + ".gz", "gz"), (stem + ".zip", "zip"), (dotted, "raw"), (dotted + ".gz", "gz"))
        if hit := _first(entry, folder, names):
            yield Part(remote, *hit, member=stem if hit[1] == "zip" else "")


def _find_music(entry: Entry, folder: Path) -> Iterator[Part]:
    (remote,) = entry.files or (None,)
    if remote is None:
        return
    stem = remote.name.removesuffix(".mat")
    spellings = dict.fromkeys((stem, stem.replace("_", " "), stem.replace("_", "-"), f"{stem}.de", f"{entry.title}"))
    names = tuple((f"{name}.{form}", form) for form in ("mat", "pickle") for name in spellings)
    if hit := _first(entry, folder, names):
        yield Part(remote, *hit)


def _find_treebank(entry: Entry, folder: Path) -> Iterator[Part]:
    parts = list(_find_each(entry, folder))
    if len(parts) < len(entry.files):
        archives = (("simple-examples.tgz", "tar"), ("simple-examples.tar.gz", "tar"), ("simple-examples.tar", "tar"))
        if hit := _first(entry, folder, archives):
            parts = [Part(remote, *hit, member=f"data/{remote.name}") for remote in entry.files]
    yield from parts


def _find_reviews(entry: Entry, folder: Path) -> Iterator[Part]:
    (remote,) = entry.files
    for place in _places(entry, folder):
        for tree in (place / "aclImdb", place):
            if (tree / "train" / "pos").is_dir() and (tree / "test" / "neg").is_dir():
                yield Part(remote, tree, "tree")
                return
    for place in _places(entry, folder):
        for path in sorted(place.glob("aclImdb*")):
            if path.is_file() and path.name.endswith((".tar.gz", ".tgz", ".tar")):
                yield Part(remote, path, "tar")
                return


_FINDERS: dict[str, Callable[[Entry, Path], Iterator[Part]]] = {
    "music": _find_music,
    "words": _find_treebank,
    "characters": _find_treebank,
    "reviews": _find_reviews,
}
