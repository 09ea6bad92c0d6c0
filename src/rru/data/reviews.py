"""IMDB reviews, from the extracted folder or directly from the tar archive."""

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.folder import Found, Part
from rru.data.sets import SPLITS, LabelledTexts, Reviews
from rru.data.streams import data_errors, decode_text
from rru.data.tar import tar_files
from rru.data.vocabulary import Vocabulary

VOCABULARY_SIZE = 10_000
REVIEW_LIMIT = 1 << 20  # bytes; the longest review has 14,000
TEXT_LIMIT = 1 << 27  # bytes of all labelled reviews; the data set has half of that
WORD_LIMIT = 1 << 24  # words of all reviews; the data set has 11.5 million
CHUNK_LIMIT = 450_000  # different chunks of text without spaces; the data set has 365,437
LABELS = ("neg", "pos")

_NAME = re.compile(r"aclImdb/(train|test)/(neg|pos)/(\d{1,9})_(\d{1,2})\.txt")
WORD = r"[^\W_]+(?:'[^\W_]+)*"
"""The regular expression of a word in a review."""
_WORD = re.compile(WORD)

Key = tuple[str, int, int]  # train or test, label, number of the review


def words_of(text: str) -> list[str]:
    """Split a review into lower-case words: letters, digits and inner apostrophes. Everything else is dropped."""
    return _WORD.findall(_normalized(text))


def _normalized(text: str) -> str:
    return text.lower().replace("<br />", " ")


class _WordIds(dict[str, int]):
    """Ids of words, in the order of first use."""

    def __missing__(self, word: str) -> int:
        word_id = self[word] = len(self)
        return word_id


class _ChunkIds(dict[str, tuple[int, ...]]):
    """A cache of the word ids of chunks of text without spaces: most chunks repeat."""

    def __init__(self) -> None:
        super().__init__()
        self.words = _WordIds()

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        ids = self[chunk] = tuple(map(self.words.__getitem__, _WORD.findall(chunk)))
        return ids


def prepare(files: Found, options: Mapping[str, bool]) -> Prepared:
    """Read, split and encode the reviews. The vocabulary comes from the training split."""
    (part,) = files.parts
    chunk_ids = _ChunkIds()
    reviews: dict[Key, array[int]] = {}
    words = 0
    for key, text in labelled_reviews(part):
        if key in reviews:
            raise DataError(part.path, "contains the same review twice", "/".join(map(str, key)))
        reviews[key] = array("i", chain.from_iterable(map(chunk_ids.__getitem__, _normalized(text).split())))
        words += len(reviews[key])
        if words > WORD_LIMIT or len(chunk_ids) > CHUNK_LIMIT:
            reason = f"has more than {WORD_LIMIT} words, or more than {CHUNK_LIMIT} different ones"
            raise DataError(part.path, reason, "/".join(map(str, key)))
    splits = _split(reviews)
    _check_counts(part, splits, files.data_set.statistics["reviews"] if options["verify"] else None)
    vocabulary, token_of_word = _vocabulary([reviews[key] for key in splits["train"]], list(chunk_ids.words))
    arrays: dict[str, NDArray[np.generic]] = {}
    for split, keys in splits.items():
        texts = [np.frombuffer(reviews[key], np.int32) for key in keys]
        arrays[f"{split}_tokens"] = token_of_word[np.concatenate(texts)]
        arrays[f"{split}_offsets"] = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        arrays[f"{split}_labels"] = np.array([label for _, label, _ in keys], np.uint8)
    return Prepared(arrays, {"vocabulary": vocabulary.fields()})


def from_prepared(ready: Prepared) -> Reviews:
    """Build the data set from cached arrays."""
    names = ("tokens", "offsets", "labels")
    splits = {split: LabelledTexts(*(ready.arrays[f"{split}_{name}"] for name in names)) for split in SPLITS}
    vocabulary = Vocabulary.from_fields(ready.about["vocabulary"], Path("cached arrays"))
    return Reviews(**splits, vocabulary=vocabulary, classes=tuple(ready.about.get("classes", Reviews.classes)))


def _split(reviews: Iterable[Key]) -> dict[str, list[Key]]:
    """Hold out the last fifth of the training reviews of each label, by number, for validation.

    Reviews of the same film have consecutive numbers, so at most one film per label is in both splits. A random split
    would share films and be easier than the test split, whose films are all new.
    """
    splits: dict[str, list[Key]] = {"train": [], "valid": [], "test": []}
    for label in range(len(LABELS)):
        training = sorted(key for key in reviews if key[:2] == ("train", label))
        train_size = len(training) - len(training) // 5
        splits["train"] += training[:train_size]
        splits["valid"] += training[train_size:]
    splits["test"] = sorted(key for key in reviews if key[0] == "test")
    return splits


def _check_counts(part: Part, splits: dict[str, list[Key]], expected: object) -> None:
    for split, keys in splits.items():
        for label, name in enumerate(LABELS):
            if not any(key[1] == label for key in keys):
                raise DataError(part.path, f"has too few reviews: none labelled {name} for {split}")
    counts = [len(splits[split]) for split in SPLITS]
    if expected is not None and counts != expected:
        reason = f"must have {expected} reviews in train, valid and test, got {counts}"
        raise DataError(part.path, f"{reason}; verify=False skips this check")


def _vocabulary(training: list["array[int]"], words: list[str]) -> tuple[Vocabulary, NDArray[np.uint16]]:
    """Return the most frequent words of the training split, and the token id of every word in the data set."""
    text = np.concatenate([np.frombuffer(review, np.int32) for review in training])
    counts = np.bincount(text, minlength=len(words)).tolist()
    seen = [word for word, count in enumerate(counts) if count]
    frequent = sorted(seen, key=lambda word: (-counts[word], words[word]))[:VOCABULARY_SIZE]
    vocabulary = Vocabulary.of([words[word] for word in frequent], "words")
    token_of_word = np.full(len(words), vocabulary.unknown, np.uint16)
    token_of_word[frequent] = np.arange(len(vocabulary) - len(frequent), len(vocabulary))
    return vocabulary, token_of_word


def labelled_reviews(part: Part) -> Iterator[tuple[Key, str]]:
    """Yield every labelled review, in no particular order. Other files are skipped."""
    total = 0
    for name, match, data in _tree_files(part) if part.form == "tree" else _tar_members(part):
        total += max(len(data), 1024)  # every review has some overhead in memory
        if len(data) > REVIEW_LIMIT or total > TEXT_LIMIT:
            reason = f"has more than {REVIEW_LIMIT} bytes in a review, or {TEXT_LIMIT} in total"
            raise DataError(part.path, reason, name)
        split, label, number, _ = match.groups()
        yield (split, LABELS.index(label), int(number)), decode_text(data, part.path, name)


def _tar_members(part: Part) -> Iterator[tuple[str, "re.Match[str]", bytes]]:
    with data_errors(part.path):
        for name, content in tar_files(part.path):
            if match := _NAME.fullmatch(name):
                yield name, match, content.read(REVIEW_LIMIT + 1)


def _tree_files(part: Part) -> Iterator[tuple[str, "re.Match[str]", bytes]]:
    for folder in (f"{split}/{label}" for split in ("train", "test") for label in LABELS):
        with data_errors(part.path, folder):
            for path in (part.path / folder).iterdir():
                match = _NAME.fullmatch(f"aclImdb/{folder}/{path.name}")
                if match and path.is_file():
                    with path.open("rb") as file:
                        yield f"{folder}/{path.name}", match, file.read(REVIEW_LIMIT + 1)
