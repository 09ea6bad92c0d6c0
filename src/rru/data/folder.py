"""Find data sets in the data folder, in any accepted file format."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from rru.data.catalogue import DataSet, RemoteFile
from rru.data.errors import MissingData
from rru.extras import extra

_cache: ContextVar[Path | None] = ContextVar("_cache", default=None)


@dataclass(frozen=True)
class Part:
    """A file of a data set, as found in the data folder.

    **Arguments:**

    - `remote`: the file in the catalogue.
    - `path`: the file; for the form `tree`, a folder.
    - `form`: `raw` (not compressed), `gz`, `zip`, `tar` (also compressed), `tree`, `mat` or `pickle`.
    - `member`: for a file in an archive, the end of its name there.
    """

    remote: RemoteFile
    path: Path
    form: str
    member: str = ""


@dataclass(frozen=True)
class Found:
    """A data set found in the data folder.

    **Arguments:**

    - `data_set`: the data set.
    - `folder`: the data folder.
    - `parts`: one for each file of the data set, in the same order.
    """

    data_set: DataSet
    folder: Path
    parts: tuple[Part, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files and folders, without duplicates."""
        return tuple(dict.fromkeys(part.path for part in self.parts))


def data_dir(given: Path | str | None = None) -> Path:
    """Return the data folder: `given`, else `RRU_DATA_DIR`, else the user's cache folder."""
    if given is not None:
        return Path(given).expanduser()
    return _named("RRU_DATA_DIR")


def cache_dir() -> Path:
    """Return the folder of the cache: that of `cached_in`, else `RRU_CACHE_DIR`, else the user's cache folder."""
    return _cache.get() or _named("RRU_CACHE_DIR")


@contextmanager
def cached_in(folder: Path) -> Iterator[None]:
    """Let `folder` be the cache folder inside the block, in this thread."""
    token = _cache.set(folder)
    try:
        yield
    finally:
        _cache.reset(token)


def _named(variable: str) -> Path:
    if named := os.environ.get(variable):
        return Path(named).expanduser()
    with extra("train"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")  # tqdm's, in notebooks without ipywidgets
        import pooch
    return Path(pooch.os_cache("rru"))


def find(data_set: DataSet, folder: Path) -> Found:
    """Find the files of a data set. Raise MissingData if they are not in the folder."""
    files = present(data_set, folder)
    if files is None:
        raise MissingData(data_set, folder)
    return files


def present(data_set: DataSet, folder: Path) -> Found | None:
    """Find the files of a data set, or return None. An embedded data set is always present, without files."""
    finder = _FINDERS.get(data_set.kind, _find_each)
    parts = tuple(finder(data_set, folder))
    return Found(data_set, folder, parts) if len(parts) == len(data_set.files) else None


def _search_folders(data_set: DataSet, folder: Path) -> Iterator[Path]:
    """Yield the folders to look in: the published sub-folder, the data folder, and common alternatives."""
    published = data_set.files[0].path.rpartition("/")[0]
    names = (published, "", data_set.name, "simple-examples/data", f"{published}/simple-examples/data", "MNIST/raw")
    yield from dict.fromkeys(folder / name for name in names)


def _first_file(data_set: DataSet, folder: Path, names: tuple[tuple[str, str], ...]) -> tuple[Path, str] | None:
    """Return path and form of the first file that exists, from pairs of name and form."""
    for name, form in names:
        for parent in _search_folders(data_set, folder):
            if (parent / name).is_file():
                return parent / name, form
    return None


def _find_each(data_set: DataSet, folder: Path) -> Iterator[Part]:
    """Find each file on its own: as published, uncompressed, gzipped or zipped."""
    for remote in data_set.files:
        stem = remote.name.removesuffix(".gz").removesuffix(".zip")
        dotted = stem.replace("-idx", ".idx")  # some tools write train-images.idx3-ubyte
        published = remote.name, remote.name.removeprefix(stem)[1:] or "raw"  # first: `fetch` can replace it
        others = (stem, "raw"), (stem + ".gz", "gz"), (stem + ".zip", "zip"), (dotted, "raw"), (dotted + ".gz", "gz")
        if hit := _first_file(data_set, folder, (published, *others)):
            yield Part(remote, *hit, member=stem if hit[1] == "zip" else "")


def _find_music(data_set: DataSet, folder: Path) -> Iterator[Part]:
    (remote,) = data_set.files or (None,)
    if remote is None:
        return
    stem = remote.name.removesuffix(".mat")
    spellings = dict.fromkeys((stem, stem.replace("_", " "), stem.replace("_", "-"), f"{stem}.de", f"{data_set.title}"))
    names = tuple((f"{name}.{form}", form) for form in ("mat", "pickle") for name in spellings)
    if hit := _first_file(data_set, folder, names):
        yield Part(remote, *hit)


def _find_treebank(data_set: DataSet, folder: Path) -> Iterator[Part]:
    parts = list(_find_each(data_set, folder))
    if len(parts) < len(data_set.files):
        archives = (("simple-examples.tgz", "tar"), ("simple-examples.tar.gz", "tar"), ("simple-examples.tar", "tar"))
        if hit := _first_file(data_set, folder, archives):
            parts = [Part(remote, *hit, member=f"data/{remote.name}") for remote in data_set.files]
    yield from parts


def _find_reviews(data_set: DataSet, folder: Path) -> Iterator[Part]:
    (remote,) = data_set.files
    for parent in _search_folders(data_set, folder):
        for path in sorted(parent.glob("aclImdb*")):
            if path.is_file() and path.name.endswith((".tar.gz", ".tgz", ".tar")):
                yield Part(remote, path, "tar")
                return
    for parent in _search_folders(data_set, folder):
        for tree in (parent / "aclImdb", parent):
            if (tree / "train" / "pos").is_dir() and (tree / "test" / "neg").is_dir():
                yield Part(remote, tree, "tree")
                return


_FINDERS: dict[str, Callable[[DataSet, Path], Iterator[Part]]] = {
    "music": _find_music,
    "words": _find_treebank,
    "characters": _find_treebank,
    "reviews": _find_reviews,
}
