"""Texts with labels, to classify: one in each row of a table, or a folder with one sub-folder for each class.

They are read by words: letters, digits and inner apostrophes, in lower case.
"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rru.data import reviews
from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.own.data_json import LabelFacts
from rru.data.own.detect import is_table, unclear
from rru.data.own.formats import Candidate, Format, Options
from rru.data.own.labels import Items, about_labels, content_hash, divided
from rru.data.own.source import files_below
from rru.data.own.table import read_table
from rru.data.own.text import SUFFIXES, VOCABULARY, frequent_words
from rru.data.reviews import REVIEW_LIMIT, words_of
from rru.data.sets import SPLITS, LabelledTexts, Reviews
from rru.data.streams import decode_text, read_file
from rru.data.vocabulary import Vocabulary

if TYPE_CHECKING:
    from rru.data.own import OwnData


def prepare(own: "OwnData") -> Prepared:
    """Read labelled texts and encodes them by words."""
    items = {split: _texts(own, place) for split, place in own.places.items()}
    keys = {split: [content_hash(" ".join(words).encode()) for words in some.contents] for split, some in items.items()}
    parts = divided(own, items, keys)
    counts = Counter(word for words in parts["train"].contents for word in words)
    vocabulary = frequent_words(counts, own.options.get("vocabulary", VOCABULARY), "words")
    classes = parts["train"].classes
    arrays: dict[str, NDArray[Any]] = {}
    for split, part in parts.items():
        arrays[f"{split}_tokens"] = vocabulary.numbers([word for words in part.contents for word in words])
        arrays[f"{split}_offsets"] = np.cumsum([0, *map(len, part.contents)], dtype=np.int64)
        arrays[f"{split}_labels"] = part.indices(classes)
    sizes = {"texts": [len(parts[split].contents) for split in SPLITS]}
    sizes["words"] = [int(arrays[f"{split}_offsets"][-1]) for split in SPLITS]
    words = f"{' / '.join(f'{count:,}' for count in sizes['words'])} words; vocabulary {len(vocabulary):,}"
    statistics = {**sizes, "vocabulary": len(vocabulary), "classes": len(classes)}
    facts = LabelFacts(**about_labels(own, parts, items, "texts", words), statistics=statistics)
    return Prepared(arrays, facts.fields() | {"vocabulary": vocabulary.fields()})


def from_prepared(ready: Prepared) -> Reviews:
    """Build the data set from cached arrays."""
    names = ("tokens", "offsets", "labels")
    splits = {split: LabelledTexts(*(ready.arrays[f"{split}_{name}"] for name in names)) for split in SPLITS}
    vocabulary = Vocabulary.from_fields(ready.about["vocabulary"], Path("cached arrays"))
    return Reviews(splits["train"], splits["valid"], splits["test"], vocabulary, tuple(ready.about["classes"]))


def _texts(own: "OwnData", place: Path) -> Items:
    if place.is_dir():
        return _texts_in_folders(place)
    table = read_table(place)
    texts, labels = table[own.options["text"]].texts(), table[own.options["label"]].texts()
    pairs = [(words_of(text), label) for text, label in zip(texts, labels, strict=True)]
    labelled = [(words, label) for words, label in pairs if words and label]
    return Items([words for words, _ in labelled], [label for _, label in labelled], len(pairs) - len(labelled))


def _texts_in_folders(place: Path) -> Items:
    contents, labels, left_out = [], [], 0
    for file in files_below(place, SUFFIXES):
        parts = file.relative_to(place).parts
        if len(parts) < 2:
            continue
        if not file.stat().st_size:
            left_out += 1
            continue
        words = words_of(decode_text(read_file(file, REVIEW_LIMIT), file))
        if words:
            contents.append(words)
            labels.append(parts[0])
        left_out += not words
    return Items(contents, labels, left_out)


def class_folders(place: Path) -> list[str]:
    """Return the names of the sub-folders of a folder that have text files in them."""
    parts = [file.relative_to(place).parts for file in files_below(place, SUFFIXES)]
    return list(dict.fromkeys(names[0] for names in parts if len(names) > 1))


def _recognise(candidate: Candidate) -> bool:
    if not candidate.path.is_dir():
        return is_table(candidate) and "text" in candidate.options and "target" not in candidate.options
    if "by" in candidate.options or not candidate.suffixes & set(SUFFIXES):
        return False
    classes, path = class_folders(candidate.path), candidate.path
    if len(classes) > 1 and set(classes) <= {"train", "valid", "test", "validation"}:
        raise DataError(path, f"has sub-folders {', '.join(classes)}; give {path / 'train'} and --test {path / 'test'}")
    return len(classes) > 1


def _complete(path: Path, options: Options) -> Options:
    if not path.is_dir() and "label" not in options:
        raise unclear(path, options)
    return options


FORMAT = Format(
    "texts",
    "texts with labels",
    from_prepared,
    prepare,
    LabelFacts,
    suffixes=SUFFIXES,
    options=("text", "label", "vocabulary"),
    complete=_complete,
    recognise=_recognise,
)
REVIEWS = Format("reviews", "film reviews with labels", reviews.from_prepared, prepare_set=reviews.prepare)
