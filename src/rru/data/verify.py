"""Check the files in a data folder against the published ones, in any compression."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rru.data import load, reviews
from rru.data.catalogue import DataSet
from rru.data.errors import DataError
from rru.data.folder import Part, present
from rru.data.sets import Music
from rru.data.streams import CONTENT_LIMIT, content_hash
from rru.extras import extra

with extra("train"):
    import pooch

State = Literal["as published", "same content", "same counts", "wrong", "missing", "embedded"]

# Hash of the sorted lines "key hash" of the 50,000 labelled reviews, the same for the folder and any archive of it.
REVIEWS_HASH = "sha256:6d7be2e31aff852a49a2077491b88103855543023173c4de6702634e7a8e1e9c"


@dataclass(frozen=True)
class FileCheck:
    """The result of checking one file of a data set.

    **Arguments:**

    - `path`: the file or folder, present or expected.
    - `state`: `as published`, `same content` (in another compression), `same counts` (no hash of the content is known),
      `wrong`, `missing`, or `embedded` for a data set that ships with the package.
    - `detail`: an explanation.
    """

    path: Path
    state: State
    detail: str


def verify(data_set: DataSet, folder: Path, watch: Callable[[Path], object] | None = None) -> list[FileCheck]:
    """Check all files of a data set. Files that cannot be read are reported as wrong, not raised.

    **Arguments:**

    - `data_set`: the data set, from `rru.data.data_set`.
    - `folder`: the data folder, from `rru.data.data_dir`.
    - `watch`: called with each file before it is read.

    **Returns:** one check per file.
    """
    if data_set.embedded:
        return [FileCheck(Path("rru/data") / f"{data_set.name}.npz", "embedded", "embedded in the package")]
    files = present(data_set, folder)
    checks = []
    for part in files.parts if files else [Part(file, folder / file.path, "") for file in data_set.files]:
        if watch is not None:
            watch(part.path)
        try:
            checks.append(_check(data_set, folder, part))
        except (DataError, OSError) as error:
            checks.append(FileCheck(part.path, "wrong", f"WRONG: {error}"))
    return checks


def _check(data_set: DataSet, folder: Path, part: Part) -> FileCheck:
    """Check the hash of the file, else of its content, else its counts."""
    file, path = part.remote, part.path
    if not path.exists():
        return FileCheck(path, "missing", "missing")
    size = path.stat().st_size
    may_match = size == file.size if file.size is not None else size <= CONTENT_LIMIT  # small enough to be hashed
    if path.is_file() and may_match and pooch.hashes.hash_matches(path, file.hash):
        return FileCheck(path, "as published", f"as published ({_algorithm(file.hash)})")
    if not part.form:
        return FileCheck(path, "wrong", f"WRONG: not the published file, which has the hash {file.hash}")
    if data_set.kind == "reviews":
        expected, got, matching = REVIEWS_HASH, _reviews_hash(part), "sha256 of all labelled reviews"
    elif file.content is not None:
        matching = _algorithm(file.content)
        expected, got = file.content, content_hash(part, matching)
        matching += f" of its {file.content_size:,} bytes" if file.content_size is not None else ""
    else:
        counts = _check_counts(data_set, folder, path)
        return FileCheck(path, "same counts", f"differs from the published file (content checked: {counts})")
    if got != expected:
        return FileCheck(path, "wrong", f"WRONG: hash of the content must be {expected}, got {got}")
    return FileCheck(path, "same content", f"differs from the published file (content checked: {matching} matches)")


def _algorithm(prefixed_hash: str) -> str:
    return prefixed_hash.partition(":")[0]


def _check_counts(data_set: DataSet, folder: Path, path: Path) -> str:
    """Compare counts with the catalogue and describe them. Raise DataError if one differs."""
    loaded = load(data_set.name, folder)
    if not isinstance(loaded, Music):
        return "it is readable"
    splits = (loaded.train, loaded.valid, loaded.test)
    counts = {"pieces": [len(split) for split in splits], "steps": [sum(map(len, split)) for split in splits]}
    compared = {name: numbers for name, numbers in counts.items() if name in data_set.statistics}
    for name, numbers in compared.items():
        if numbers != data_set.statistics[name]:
            raise DataError(
                path, f"must have {data_set.statistics[name]} {name} in train, valid and test, got {numbers}"
            )
    return ", ".join(f"{'/'.join(f'{number:,}' for number in numbers)} {name}" for name, numbers in compared.items())


def _reviews_hash(part: Part) -> str:
    """Hash the labelled reviews and their names, independent of the archive they are in."""
    texts = reviews.labelled_reviews(part)
    lines = sorted(f"{key} {hashlib.sha256(text.encode()).hexdigest()}\n" for key, text in texts)
    return "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()
