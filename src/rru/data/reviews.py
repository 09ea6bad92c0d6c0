"""The IMDB reviews, from the folder tree or from its tar, which is never unpacked."""

import re
from array import array
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.folder import Found, Part
from rru.data.sets import LabelledTexts, Reviews
from rru.data.streams import decoded, reading
from rru.data.tar import tar_files
from rru.data.vocabulary import Vocabulary

WORDS = 10_000
REVIEW_LIMIT = 1 << 20  # bytes; the longest has 14,000
TEXT_LIMIT = 1 << 28  # bytes of all labelled reviews; the whole set has a quarter of that
LABELS = ("neg", "pos")
SPLITS = ("train", "valid", "test")

_NAME = re.compile(r"aclImdb/(train|test)/(neg|pos)/(\d{1,9})_(\d{1,2})\.txt")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")

Place = tuple[str, int, int]  # train or test, label, number


def words_of(text: str) -> list[str]:
    """The words of a review: lower case, runs of letters and digits with apostrophes inside; the rest is dropped."""
    return _WORD.findall(_plain(text))


def _plain(text: str) -> str:
    return text.lower().replace("<br />", " ")


class _Words(dict[str, int]):
    """Numbers words in the order they are first asked for."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class _Numbered(dict[str, tuple[int, ...]]):
    """The numbers of the words in a run of characters without blanks, each worked out once: most come again."""

    def __init__(self) -> None:
        super().__init__()
        self.words = _Words()

    def __missing__(self, run: str) -> tuple[int, ...]:
        numbers = self[run] = tuple(map(self.words.__getitem__, _WORD.findall(run)))
        return numbers


def prepare(found: Found, options: dict[str, Any]) -> Prepared:
    """Reviews as word numbers, split; the vocabulary from the reviews left to train on."""
    (part,) = found.parts
    numbered = _Numbered()
    reviews: dict[Place, array[int]] = {}
    for place, text in labelled_reviews(part):
        if place in reviews:
            raise DataError(part.path, "holds the same review twice", "/".join(map(str, place)))
        reviews[place] = array("i", chain.from_iterable(map(numbered.__getitem__, _plain(text).split())))
    splits = _split(reviews)
    _check(part, splits, found.entry.statistics["reviews"] if options["verify"] else None)
    vocabulary, numbers = _vocabulary([reviews[place] for place in splits["train"]], list(numbered.words))
    arrays: dict[str, NDArray[Any]] = {}
    for split, places in splits.items():
        texts = [np.frombuffer(reviews[place], np.int32) for place in places]
        arrays[f"{split}_tokens"] = numbers[np.concatenate(texts)]
        arrays[f"{split}_offsets"] = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        arrays[f"{split}_labels"] = np.array([label for _, label, _ in places], np.uint8)
    return Prepared(arrays, {"vocabulary": vocabulary.fields()})


def from_prepared(ready: Prepared) -> Reviews:
    """The set, from its prepared form."""
    names = ("tokens", "offsets", "labels")
    splits = {split: LabelledTexts(*(ready.arrays[f"{split}_{name}"] for name in names)) for split in SPLITS}
    return Reviews(**splits, vocabulary=Vocabulary.from_fields(ready.about["vocabulary"], Path("prepared form")))


def _split(reviews: dict[Place, Any]) -> dict[str, list[Place]]:
    """The last fifth of each label's training reviews, by number, validates.

    Reviews of one film lie next to each other, so only one film of each label is on both sides; a hold-out at random
    would be easier than the test, whose films are all new.
    """
    splits: dict[str, list[Place]] = {"train": [], "valid": [], "test": []}
    for label in range(len(LABELS)):
        training = sorted(place for place in reviews if place[:2] == ("train", label))
        kept = len(training) - len(training) // 5
        splits["train"] += training[:kept]
        splits["valid"] += training[kept:]
    splits["test"] = sorted(place for place in reviews if place[0] == "test")
    return splits


def _check(part: Part, splits: dict[str, list[Place]], expected: list[int] | None) -> None:
    for split, places in splits.items():
        for label, name in enumerate(LABELS):
            if not any(place[1] == label for place in places):
                raise DataError(part.path, f"holds too few reviews: none labelled {name} for {split}")
    counts = [len(splits[split]) for split in SPLITS]
    if expected is not None and counts != expected:
        raise DataError(
            part.path, f"gives {counts} reviews, the whole set gives {expected}; verify=False reads it all the same"
        )


def _vocabulary(training: list["array[int]"], words: list[str]) -> tuple[Vocabulary, NDArray[np.uint16]]:
    """The most frequent words of the training part, and the number of every word seen anywhere."""
    text = np.concatenate([np.frombuffer(review, np.int32) for review in training])
    counts = np.bincount(text, minlength=len(words)).tolist()
    seen = [word for word, count in enumerate(counts) if count]
    frequent = sorted(seen, key=lambda word: (-counts[word], words[word]))[:WORDS]
    vocabulary = Vocabulary.of([words[word] for word in frequent], "words")
    numbers = np.full(len(words), vocabulary.unknown, np.uint16)
    numbers[frequent] = np.arange(len(vocabulary) - len(frequent), len(vocabulary))
    return vocabulary, numbers


def labelled_reviews(part: Part) -> Iterator[tuple[Place, str]]:
    """Every labelled review, in whichever order it comes; anything else in tree or archive is passed over."""
    total = 0
    for name, match, data in _tree_files(part) if part.form == "tree" else _tar_members(part):
        total += max(len(data), 1024)  # a review takes some memory of its own, however short
        if len(data) > REVIEW_LIMIT or total > TEXT_LIMIT:
            reason = f"holds more than {REVIEW_LIMIT} bytes in a review, or {TEXT_LIMIT} in all"
            raise DataError(part.path, reason, name)
        split, label, number, _ = match.groups()
        yield (split, LABELS.index(label), int(number)), decoded(data, part.path, name)


def _tar_members(part: Part) -> Iterator[tuple[str, "re.Match[str]", bytes]]:
    with reading(part.path):
        for name, content in tar_files(part.path):
            if match := _NAME.fullmatch(name):
                yield name, match, content.read(REVIEW_LIMIT + 1)


def _tree_files(part: Part) -> Iterator[tuple[str, "re.Match[str]", bytes]]:
    for folder in (f"{split}/{label}" for split in ("train", "test") for label in LABELS):
        with reading(part.path, folder):
            for path in (part.path / folder).iterdir():
                match = _NAME.fullmatch(f"aclImdb/{folder}/{path.name}")
                if match and path.is_file():
                    with path.open("rb") as file:
                        yield f"{folder}/{path.name}", match, file.read(REVIEW_LIMIT + 1)
