"""Users' own data: a file or folder becomes an `OwnData`, which loads to the same arrays as the catalogue's sets.

```python
from rru import data

novel = data.from_text("novel.txt")
print(novel.summary)  # kind, sizes, vocabulary, split
text = novel.load()
```
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rru.data.cache import Prepared, cached
from rru.data.catalogue import CATALOGUE
from rru.data.errors import DataError
from rru.data.own.data_json import Facts, Statistics
from rru.data.own.formats import Format, Options, format_of
from rru.data.own.in_memory import frame_errors
from rru.data.own.source import Fingerprint, fingerprint
from rru.data.sets import Loaded

_CACHED = ("fingerprints", "prepared")


@dataclass(frozen=True)
class OwnData:
    """A user's data: where it is, what it is, and how to read it. Make one with `from_path` or `from_text`, ...

    **Arguments:**

    - `kind`: one of `rru.data.own.formats.FORMATS`.
    - `path`: the file or folder.
    - `options`: how to read it, by name; those of `Format.options`.
    - `valid`, `test`: files or folders to validate and test on. Default: a tenth of `path` each.
    - `expected`: the fingerprints that a run recorded, by split; `train` is `path`. Other data is then refused.
    """

    kind: str
    path: Path
    options: Options = field(default_factory=dict, hash=False)
    valid: Path | None = None
    test: Path | None = None
    expected: Mapping[str, Fingerprint] = field(default_factory=dict, hash=False)

    @property
    def format(self) -> Format:
        """How data of its kind is read."""
        return format_of(self.kind)

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
        """The size and hash of each place; raise DataError if it is not what a run recorded."""
        current: dict[str, Fingerprint] = {}
        for split, place in self.places.items():
            if split in self.expected and not place.exists():
                raise DataError(place, "is gone; put it back or, if it has moved, run `rru train` with its new path")
            current[split] = now = fingerprint(place, self.format.suffixes)
            if (before := self.expected.get(split, now)) != now:
                sizes = f"it had {before.size:,} bytes and has {now.size:,}"
                change = sizes if before.size != now.size else f"still {now.size:,} bytes, but other content"
                advice = "restore it, or train a new run on it"
                raise DataError(place, f"has changed since the run began: {change}; {advice}")
        return current

    @cached_property
    def prepared(self) -> Prepared:
        """The arrays and what is known about them, from the cache if they are there."""
        if self.format.prepare is None:
            raise DataError(self.path, f"cannot be read: {self.format.title} come from the catalogue alone")
        prepare = self.format.prepare
        prints = {split: [each.size, each.hash] for split, each in self.fingerprints.items()}
        key = [self.kind, prints, sorted(self.options.items()), self.title]
        with frame_errors():
            return cached(f"own-{self.name}", key, lambda: prepare(self))

    @cached_property
    def facts(self) -> Facts:
        """What a run keeps about its data: statistics, summary, notes, and what its model needs."""
        return self.format.facts.of(self.prepared.about)

    @property
    def statistics(self) -> Statistics:
        """Count by name, as in the catalogue: one number, or a list for train, valid and test."""
        return self.facts.statistics

    @property
    def summary(self) -> str:
        """What was understood, in one line."""
        return f"{self.title}: {self.format.title}; {self.facts.summary}"

    @property
    def notes(self) -> list[str]:
        """What the user should know: what was left out, copies in several splits, and so on."""
        return list(self.facts.notes)

    def recorded(self) -> "OwnData":
        """Return the same data as a config keeps it: with absolute paths and fingerprints. Nothing is read again."""
        places = {split: place.absolute() for split, place in self.places.items()}
        changes = {"path": places["train"], "valid": places.get("valid"), "test": places.get("test")}
        return self._like(_CACHED, **changes, expected=self.fingerprints)

    def load(self, **options: object) -> Loaded:
        """Load the data. Arrays may be memory-mapped; do not write to them.

        **Arguments:** `options`: put over the options of this data, such as `line_ends=True` for words.
        """
        this = self._like(_CACHED[:1], options={**self.options, **options}) if options else self
        return self.format.from_prepared(this.prepared)

    def _like(self, known: tuple[str, ...], **changes: Any) -> "OwnData":
        """Return a copy with some fields changed that has the cached properties `known`, as far as they are there."""
        copy = replace(self, **changes)
        vars(copy).update({name: value for name, value in vars(self).items() if name in known})
        return copy

    def __getstate__(self) -> dict[str, object]:  # without the arrays: another process reads them from its cache
        return {each.name: getattr(self, each.name) for each in fields(self)}
