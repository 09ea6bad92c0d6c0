"""Whether the files in a data folder are the published ones, whatever they are packed in."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pooch

from rru.data import load, reviews
from rru.data.catalogue import Entry, RemoteFile
from rru.data.errors import DataError
from rru.data.folder import Part, present
from rru.data.sets import Music
from rru.data.streams import content_hash

State = Literal["as published", "same content", "same counts", "wrong", "missing", "embedded"]

# Of the 50,000 labelled reviews, in whatever archive or folder: the hash of the sorted lines "place hash".
REVIEWS = "sha256:6d7be2e31aff852a49a2077491b88103855543023173c4de6702634e7a8e1e9c"


@dataclass(frozen=True)
class Verdict:
    """What one file of a set was found to be.

    **Arguments:**

    - `path`: the file or folder, where it is or would be.
    - `state`: `as published`, `same content` (packed differently), `same counts` (all that can be known of it),
      `wrong`, `missing`, or `embedded` for a set inside the package.
    - `detail`: the same in words.
    """

    path: Path
    state: State
    detail: str


def verify(entry: Entry, folder: Path, watch: Callable[[Path], object] | None = None) -> list[Verdict]:
    """Reads all files of a set and says what they are; never raises for what it finds in them.

    **Arguments:**

    - `entry`: the set, from `rru.data.entry`.
    - `folder`: the data folder, from `rru.data.data_dir`.
    - `watch`: called with each file before it is read.

    **Returns:** one verdict for each of the set's files.
    """
    if entry.embedded:
        return [Verdict(Path("rru/data") / f"{entry.name}.npz", "embedded", "embedded in the package")]
    found = present(entry, folder)
    verdicts = []
    for part in found.parts if found else [Part(file, folder / file.path, "") for file in entry.files]:
        if watch is not None:
            watch(part.path)
        try:
            verdicts.append(_verdict(entry, folder, part))
        except (DataError, OSError) as error:
            verdicts.append(Verdict(part.path, "wrong", f"WRONG: {error}"))
    return verdicts


def _verdict(entry: Entry, folder: Path, part: Part) -> Verdict:
    """Tries what is surest first: the file's own hash, that of its content, counts."""
    file, path = part.remote, part.path
    if not path.exists():
        return Verdict(path, "missing", "missing")
    if path.is_file() and pooch.hashes.hash_matches(path, file.hash):
        return Verdict(path, "as published", f"as published ({_algorithm(file.hash)})")
    if not part.form:
        return Verdict(path, "wrong", f"WRONG: not the published file, whose hash is {file.hash}")
    expected = REVIEWS if entry.kind == "reviews" else file.content
    if expected is None:
        counted = _counted(entry, folder, path)
        return Verdict(path, "same counts", f"differs from the published file (content checked: {counted})")
    got = _reviews_hash(part) if entry.kind == "reviews" else content_hash(part, _algorithm(expected))
    if got != expected:
        return Verdict(path, "wrong", f"WRONG: what it holds has the hash {got}, published is {expected}")
    return Verdict(path, "same content", f"differs from the published file (content checked: {_content(entry, file)})")


def _algorithm(written: str) -> str:
    return written.partition(":")[0]


def _content(entry: Entry, file: RemoteFile) -> str:
    if entry.kind == "reviews":
        return "every labelled review is the original, by sha256"
    size = f"{file.content_size:,} bytes" if file.content_size is not None else "what it holds"
    return f"{size} inside are the original, by {_algorithm(file.content or '')}"


def _counted(entry: Entry, folder: Path, path: Path) -> str:
    """Which counts were compared with the catalogue's; a DataError if one differs."""
    loaded = load(entry.name, folder)
    if not isinstance(loaded, Music):
        return "it can be read"
    splits = (loaded.train, loaded.valid, loaded.test)
    counts = {"pieces": [len(split) for split in splits], "steps": [sum(map(len, split)) for split in splits]}
    compared = {name: numbers for name, numbers in counts.items() if name in entry.statistics}
    for name, numbers in compared.items():
        if numbers != entry.statistics[name]:
            raise DataError(path, f"must have {entry.statistics[name]} {name} in train, valid and test, got {numbers}")
    return ", ".join(f"{'/'.join(f'{number:,}' for number in numbers)} {name}" for name, numbers in compared.items())


def _reviews_hash(part: Part) -> str:
    """Hash of the labelled reviews and their names, the same for the tree and for every archive of it."""
    texts = reviews.labelled_reviews(part)
    lines = sorted(f"{place} {hashlib.sha256(text.encode()).hexdigest()}\n" for place, text in texts)
    return "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()
