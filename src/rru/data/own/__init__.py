"""Users' own data: a file or folder becomes an `OwnData`, which loads to the same arrays as the catalogue's sets.

```python
from rru import data

novel = data.from_text("novel.txt")
print(novel.summary)  # kind, sizes, vocabulary, split
text = novel.load()
```
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from rru.data.cache import Prepared, cached
from rru.data.catalogue import CATALOGUE
from rru.data.errors import DataError
from rru.data.own import midi, sequences, series, text, texts
from rru.data.own.source import Fingerprint, fingerprint
from rru.data.sets import Loaded


class Kind(NamedTuple):
    """How data of a kind is read.

    **Arguments:**

    - `title`: what it is, in words.
    - `suffixes`: of the files that are read from a folder.
    - `prepare`: makes the arrays. Its `about` has `statistics` (counts as in the catalogue), `summary` (one line),
      `notes` (what the user should know), and whatever a trained model needs later, all as JSON values.
    - `from_prepared`: makes the data set from the arrays.
    """

    title: str
    suffixes: tuple[str, ...]
    prepare: Callable[["OwnData"], Prepared]
    from_prepared: Callable[[Prepared], Loaded]


_KINDS: dict[str, Kind] = {
    "characters": Kind("text by characters", text.SUFFIXES, text.prepare_characters, text.from_prepared),
    "words": Kind("text by words", text.SUFFIXES, text.prepare_words, text.from_prepared),
    "bytes": Kind("text by bytes", text.SUFFIXES, text.prepare_bytes, text.from_prepared),
    "music": Kind("MIDI files", midi.SUFFIXES, midi.prepare, midi.from_prepared),
    "texts": Kind("texts with labels", text.SUFFIXES, texts.prepare, texts.from_prepared),
    "sequences": Kind("sequences of numbers with labels", (), sequences.prepare, sequences.from_prepared),
    "series": Kind("series to forecast", (), series.prepare, series.from_prepared),
}
KINDS = tuple(_KINDS)


@dataclass(frozen=True)
class OwnData:
    """A user's data: where it is, what it is, and how to read it. Make one with `from_path` or `from_text`, ...

    **Arguments:**

    - `kind`: one of `KINDS`.
    - `path`: the file or folder.
    - `options`: how to read it, by name; see `rru.settings.tables.DataSettings`. Options at their default are left out.
    - `valid`, `test`: files or folders to validate and test on. Default: a tenth of `path` each.
    - `expected`: the fingerprints that a run recorded, by split; `train` is `path`. Other data is then refused.
    """

    kind: str
    path: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    valid: Path | None = None
    test: Path | None = None
    expected: Mapping[str, Fingerprint] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name of the file or folder."""
        return self.path.absolute().name[:60] or "data"

    @property
    def name(self) -> str:
        """The title as the name of a task and folder: `my-novel` for `My Novel.txt`."""
        stem = self.title if self.path.is_dir() else Path(self.title).stem
        slug = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:40].strip("-") or "data"
        return f"own-{slug}" if slug in CATALOGUE else slug

    @property
    def places(self) -> dict[str, Path]:
        """The files or folders, by the split they are for; `train` is also for the splits that have none."""
        given = {"train": self.path, "valid": self.valid, "test": self.test}
        return {split: place for split, place in given.items() if place is not None}

    @property
    def missing(self) -> tuple[str, ...]:
        """The splits that are held out of `path`, since the user gave no file for them."""
        return tuple(split for split in ("valid", "test") if split not in self.places)

    @cached_property
    def fingerprints(self) -> dict[str, Fingerprint]:
        """The size and hash of each place; raises DataError if it is not what a run recorded."""
        suffixes = _KINDS[self.kind].suffixes
        found = {}
        for split, place in self.places.items():
            if split in self.expected and not place.exists():
                raise DataError(place, "is gone; put it back or, if it has moved, run `rru train` with its new path")
            found[split] = fingerprint(place, suffixes)
            before = self.expected.get(split, found[split])
            if before != found[split]:
                sizes = f"it had {before.size:,} bytes and has {found[split].size:,}"
                what = sizes if before.size != found[split].size else f"still {before.size:,} bytes, but other content"
                raise DataError(place, f"has changed since the run began: {what}; restore it, or train a new run on it")
        return found

    @cached_property
    def prepared(self) -> Prepared:
        """The arrays and what is known about them, from the cache if they are there."""
        prints = {split: [each.size, each.hash] for split, each in self.fingerprints.items()}
        key = [self.kind, prints, sorted(self.options.items()), self.title]
        return cached(f"own-{self.name}", key, lambda: _KINDS[self.kind].prepare(self))

    @property
    def about(self) -> Mapping[str, Any]:
        """What a run keeps about its data: statistics, summary, notes, and what its model needs; JSON values."""
        return {name: value for name, value in self.prepared.about.items() if name != "vocabulary"}

    @property
    def statistics(self) -> Mapping[str, Any]:
        """Counts by name, as in the catalogue: one number, or a list for train, valid and test."""
        found: Mapping[str, Any] = self.prepared.about["statistics"]
        return found

    @property
    def summary(self) -> str:
        """What was understood, in one line."""
        return f"{self.title}: {_KINDS[self.kind].title}; {self.prepared.about['summary']}"

    @property
    def notes(self) -> list[str]:
        """What the user should know: what was left out, copies in several splits, and so on."""
        found: list[str] = self.prepared.about["notes"]
        return found

    def load(self, **options: Any) -> Loaded:
        """Load the data. Arrays may be memory-mapped; do not write to them.

        **Arguments:** `options`: put over the options of this data, such as `line_ends=True` for words.
        """
        this = replace(self, options={**self.options, **options}) if options else self
        return _KINDS[self.kind].from_prepared(this.prepared)
