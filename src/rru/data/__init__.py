"""Load data sets by name, as arrays in the splits of the paper.

```python
from rru import data

chorales = data.load("bach")  # ships with the package; `rru data list` shows the others
words = data.load("ptb-words", line_ends=True)
```
"""

from pathlib import Path
from typing import Literal, overload

from rru.data import bach, folder, images
from rru.data.cache import cached, source_hash
from rru.data.catalogue import CATALOGUE, DataSet, RemoteFile, data_set
from rru.data.errors import DataError, MissingData
from rru.data.folder import Found, Part, cache_dir, data_dir, find, present
from rru.data.own import OwnData, sequences, series, texts
from rru.data.own import midi as own_midi
from rru.data.own import text as own_text
from rru.data.own.data_json import Facts
from rru.data.own.detect import from_csv, from_folder, from_frame, from_midi, from_path, from_text
from rru.data.own.formats import FORMATS, Candidate, Format, format_of
from rru.data.reviews import words_of
from rru.data.sets import (
    KEYS,
    LOWEST_NOTE,
    SPLITS,
    Images,
    LabelledImages,
    LabelledSequences,
    LabelledTexts,
    Loaded,
    Music,
    Reviews,
    Sequences,
    Series,
    Text,
    permutation,
    without_empty_steps,
)
from rru.data.text import published_characters
from rru.data.vocabulary import Vocabulary

__all__ = [
    "CATALOGUE",
    "KEYS",
    "LOWEST_NOTE",
    "SPLITS",
    "Candidate",
    "DataError",
    "DataSet",
    "Facts",
    "Format",
    "Found",
    "Images",
    "LabelledImages",
    "LabelledSequences",
    "LabelledTexts",
    "Loaded",
    "MissingData",
    "Music",
    "OwnData",
    "Part",
    "RemoteFile",
    "Reviews",
    "Sequences",
    "Series",
    "Text",
    "Vocabulary",
    "cache_dir",
    "data_dir",
    "data_set",
    "find",
    "from_csv",
    "from_folder",
    "from_frame",
    "from_midi",
    "from_path",
    "from_text",
    "load",
    "permutation",
    "present",
    "published_characters",
    "without_empty_steps",
    "words_of",
]

Place = Path | str | None

for _format in (
    own_text.CHARACTERS, own_text.WORDS, own_text.BYTES, series.FORMAT, sequences.FORMAT, texts.FORMAT, own_midi.FORMAT,
    texts.REVIEWS, images.FORMAT,
):  # fmt: skip
    FORMATS[_format.name] = _format


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
def load(name: str, data_dir: Place = None, **options: bool) -> Loaded: ...


def load(name: str, data_dir: Place = None, **options: bool) -> Loaded:
    """Load a data set from the data folder or from the cache. Never accesses the network.

    **Arguments:**

    - `name`: a key of `rru.data.CATALOGUE`.
    - `data_dir`: the data folder. Default: `RRU_DATA_DIR`, else the user's cache folder.
    - `verify`: whether to check the files against the catalogue, by hash or by counts (default True). With False, any
      files of the same format are read.
    - `line_ends`: `ptb-words` only: whether the end of a line is a token, `<eos>`, as in most of the literature.
      Default False: line ends are dropped, as in the paper.

    **Returns:** `Music`, `Text`, `Reviews` or `Images`. Arrays may be memory-mapped; do not write to them.

    **Raises:** `MissingData` if the files are not in the data folder, `DataError` if they cannot be used.
    """
    dataset = data_set(name)
    reader = format_of(dataset.kind)
    known = {"verify": True, **reader.set_options}
    for option, value in options.items():
        if option not in known or not isinstance(value, bool):
            raise TypeError(f"{name} takes the options {' and '.join(known)}, True or False; got {option}={value!r}")
    if dataset.embedded:
        return bach.load()
    files = find(dataset, folder.data_dir(data_dir))
    chosen, prepare = known | options, reader.prepare_set
    assert prepare is not None  # every kind of the catalogue has it
    view_of = dataset.view_of
    source = view_of if view_of and dataset.kind == CATALOGUE[view_of].kind else dataset.name
    key = [[source_hash(path) for path in files.paths], sorted(chosen.items())]
    return reader.from_prepared(cached(source, key, lambda: prepare(files, chosen)))
