"""Texts with labels, to classify: one in each row of a table, or a folder with one sub-folder for each class.

They are read by words: letters, digits and inner apostrophes, in lower case.
"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rru.data import reviews
from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.own.data_json import LabelFacts
from rru.data.own.detect import is_table, unclear
from rru.data.own.formats import Candidate, Format, Options
from rru.data.own.frames import Frame, table_from
from rru.data.own.labels import Items, divided, label_facts
from rru.data.own.source import files_below
from rru.data.own.splits import slashed
from rru.data.own.text import SUFFIXES, VOCABULARY, frequent_words
from rru.data.reviews import REVIEW_LIMIT, words_of
from rru.data.spelling import option
from rru.data.streams import decode_text, read_file

if TYPE_CHECKING:
    from rru.data.own import OwnData


def prepare(own: "OwnData") -> Prepared:
    """Read labelled texts and encode them by words."""
    items = {split: labelled_texts(place, own.options) for split, place in own.places.items()}
    parts = divided(own, items)
    counts = Counter(word for words in parts["train"].contents for word in words)
    vocabulary = frequent_words(counts, own.options.get("vocabulary", VOCABULARY), "words")
    arrays: dict[str, NDArray[np.integer]] = {}
    for split, part in parts.items():
        arrays[f"{split}_tokens"] = vocabulary.numbers([word for words in part.contents for word in words])
        arrays[f"{split}_offsets"] = part.offsets
        arrays[f"{split}_labels"] = part.indices(parts["train"].classes)
    texts, words = ([len(part.contents) for part in parts.values()], [int(part.offsets[-1]) for part in parts.values()])
    more = f"{slashed(words)} words; vocabulary {len(vocabulary):,}"
    statistics = {"texts": texts, "words": words, "vocabulary": len(vocabulary)}
    facts = label_facts(own, items, parts, "texts", more, statistics)
    return Prepared(arrays, facts.fields() | {"vocabulary": vocabulary.fields()})


def labelled_texts(place: Path | Frame, options: Options) -> Items[list[str]]:
    """Return the words and the labels of the texts in a folder or a table; texts without either are left out."""
    if isinstance(place, Path) and place.is_dir():
        files = _labelled_files(place)
        texts = [decode_text(read_file(file, REVIEW_LIMIT), file) if file.stat().st_size else "" for file in files]
        labels = list(files.values())
    else:
        table = table_from(place)
        texts, labels = table[options["text"]].texts(), table[options["label"]].texts()
    pairs = [(words_of(text), label) for text, label in zip(texts, labels, strict=True)]
    labelled = [(words, label) for words, label in pairs if words and label]
    return Items([words for words, _ in labelled], [label for _, label in labelled], len(pairs) - len(labelled))


def _labelled_files(place: Path) -> dict[Path, str]:
    """Return the text files in the sub-folders of a folder, and the names of these, which are the classes."""
    parts = {file: file.relative_to(place).parts for file in files_below(place, SUFFIXES)}
    return {file: names[0] for file, names in parts.items() if len(names) > 1}


def _recognise(candidate: Candidate) -> bool:
    if not candidate.path.is_dir():
        return is_table(candidate) and "text" in candidate.options and "target" not in candidate.options
    if "by" in candidate.options or not candidate.suffixes & set(SUFFIXES):
        return False
    path = candidate.path
    classes = list(dict.fromkeys(_labelled_files(path).values()))
    if len(classes) > 1 and set(classes) <= {"train", "valid", "test", "validation"}:
        splits = f"{path / 'train'} and {option('test', str(path / 'test'))}"
        raise DataError(path, f"has sub-folders {', '.join(classes)}; give {splits}")
    return len(classes) > 1


def _complete(path: Path, options: Options) -> Options:
    if not path.is_dir() and "label" not in options:
        raise unclear(path, options)
    return options


FORMAT = Format(
    "texts",
    "texts with labels",
    reviews.from_prepared,
    prepare,
    LabelFacts,
    suffixes=SUFFIXES,
    options=("text", "label", "vocabulary"),
    complete=_complete,
    recognise=_recognise,
)
REVIEWS = Format("reviews", "film reviews with labels", reviews.from_prepared, prepare_set=reviews.prepare)
