"""Data sets by name, as arrays: read safely, split as the paper splits them.

```python
from rru import data

chorales = data.load("bach")  # ships with the package; the others: `rru data list`
words = data.load("ptb-words", line_ends=True)
```
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, overload

from rru.data import bach, folder, images, music, reviews, text
from rru.data.cache import Prepared, prepared
from rru.data.catalogue import CATALOGUE, Entry, RemoteFile, entry
from rru.data.errors import DataError, MissingData
from rru.data.folder import Found, Part, cache_dir, data_dir, find, present
from rru.data.reviews import words_of
from rru.data.sets import Images, LabelledImages, LabelledTexts, Music, Reviews, Text, permutation, without_empty_steps
from rru.data.text import published_characters
from rru.data.vocabulary import Vocabulary

__all__ = [
    "CATALOGUE",
    "DataError",
    "DataSet",
    "Entry",
    "Found",
    "Images",
    "LabelledImages",
    "LabelledTexts",
    "MissingData",
    "Music",
    "Part",
    "RemoteFile",
    "Reviews",
    "Text",
    "Vocabulary",
    "cache_dir",
    "data_dir",
    "entry",
    "find",
    "load",
    "permutation",
    "present",
    "published_characters",
    "without_empty_steps",
    "words_of",
]

DataSet = Music | Text | Reviews | Images
Place = Path | str | None

_PREPARE: dict[str, tuple[Callable[[Found, dict[str, Any]], Prepared], Callable[[Prepared], DataSet]]] = {
    "music": (music.prepare, music.from_prepared),
    "words": (text.prepare_words, text.from_prepared),
    "characters": (text.prepare_characters, text.from_prepared),
    "bytes": (text.prepare_bytes, text.from_prepared),
    "reviews": (reviews.prepare, reviews.from_prepared),
    "images": (images.prepare, images.from_prepared),
}
_OPTIONS: dict[str, dict[str, bool]] = {"words": {"line_ends": False}}


@overload
def load(
    name: Literal["bach", "jsb", "nottingham", "musedata", "piano-midi"], data_dir: Place = None, **options: bool
) -> Music: ...


@overload
def load(
    name: Literal["ptb-words", "ptb-chars", "enwik8", "text8"], data_dir: Place = None, **options: bool
) -> Text: ...


@overload
def load(name: Literal["imdb"], data_dir: Place = None, **options: bool) -> Reviews: ...


@overload
def load(name: Literal["mnist", "pmnist"], data_dir: Place = None, **options: bool) -> Images: ...


@overload
def load(name: str, data_dir: Place = None, **options: bool) -> DataSet: ...


def load(name: str, data_dir: Place = None, **options: bool) -> DataSet:
    """A data set by name, from the data folder or from its prepared form; never from the network.

    **Arguments:**

    - `name`: one of `rru.data.CATALOGUE`.
    - `data_dir`: the data folder; default: the one RRU_DATA_DIR names, else the user's cache folder.
    - `verify`: whether files must be the very ones the catalogue knows, by hash or by counts (default). With False,
      any files of the same format are read.
    - `line_ends`: for `ptb-words` only: whether a line's end is the word <eos>, as most of the field has it. Default
      False: it is nothing, as in the paper.

    **Returns:** `Music`, `Text`, `Reviews` or `Images`. Arrays may be memory-mapped and are not to be written to.
    """
    this = entry(name)
    known = {"verify": True, **_OPTIONS.get(this.kind, {})}
    for option, value in options.items():
        if option not in known or not isinstance(value, bool):
            raise TypeError(f"options of {name} must be {' or '.join(known)}, True or False; got {option}={value!r}")
    if this.embedded:
        return bach.load()
    found = find(this, folder.data_dir(data_dir))
    prepare, from_prepared = _PREPARE[this.kind]
    chosen = known | options
    source = this.view_of if this.view_of and this.kind == CATALOGUE[this.view_of].kind else this.name
    return from_prepared(prepared(source, found.paths, chosen, lambda: prepare(found, chosen)))
