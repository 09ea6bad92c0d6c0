"""Texts as token numbers: the Penn Treebank in words and characters, enwik8 and text8 in bytes."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.folder import Found, Part
from rru.data.sets import Text
from rru.data.streams import decoded, read
from rru.data.tar import CHUNK
from rru.data.vocabulary import Vocabulary

LINE_END = "<eos>"
SPLITS = ("train", "valid", "test")
TREEBANK_LIMIT = 1 << 25  # bytes of a file
BYTES_LIMIT = 1 << 28


def prepare_words(found: Found, options: dict[str, Any]) -> Prepared:
    """Penn Treebank words. Line ends count for nothing, or with `line_ends` are each the word <eos>."""
    texts = [_treebank(part, options) for part in found.parts]
    split = (lambda text: text.replace("\n", f" {LINE_END} ").split()) if options["line_ends"] else str.split
    return _prepared([split(text) for text in texts], "words")


def prepare_characters(found: Found, options: dict[str, Any]) -> Prepared:
    """Penn Treebank characters: those of the published character files, which are made from the words."""
    texts = [_treebank(part, options) for part in found.parts]
    return _prepared([published_characters(text).split() for text in texts], "characters")


def published_characters(words: str) -> str:
    """The published character file, from the file of words: characters a blank apart, a blank written `_`."""
    lines = words.removesuffix("\n").split("\n")
    return "".join(" ".join(line.strip().replace(" ", "_")) + " \n " for line in lines)


def _treebank(part: Part, options: dict[str, Any]) -> str:
    data = read(part, TREEBANK_LIMIT, options["verify"])
    text = decoded(data, part.path, f"member {part.member}" if part.member else "")
    if not text.strip():
        raise DataError(part.path, "holds no words")
    return text


def _prepared(splits: list[list[str]], kind: str) -> Prepared:
    """Numbers of tokens, the most frequent of the training part first."""
    counts = Counter(splits[0])
    vocabulary = Vocabulary.of(sorted(counts, key=lambda token: (-counts[token], token)), kind)
    arrays = {name: vocabulary.numbers(tokens) for name, tokens in zip(SPLITS, splits, strict=True)}
    return Prepared(arrays, {"vocabulary": vocabulary.fields()})


def prepare_bytes(found: Found, options: dict[str, Any]) -> Prepared:
    """A text of bytes, split 90/5/5 in order; the vocabulary is what the training part holds."""
    (part,) = found.parts
    data = np.frombuffer(read(part, BYTES_LIMIT, options["verify"]), np.uint8)
    held_out = len(data) // 20
    if held_out == 0:
        raise DataError(part.path, f"must have at least 20 bytes to be split 90/5/5, got {len(data)}")
    at = len(data) - 2 * held_out
    counts = np.zeros(256, np.int64)
    for start in range(0, at, CHUNK):  # in pieces: bincount takes eight bytes for every one
        counts += np.bincount(data[start : min(start + CHUNK, at)], minlength=256)
    seen = np.flatnonzero(counts)
    vocabulary = Vocabulary.of(map(chr, seen), "bytes")
    numbers = np.full(256, vocabulary.unknown, np.uint16)
    numbers[seen] = np.arange(len(vocabulary) - len(seen), len(vocabulary))
    data = _translated(data, numbers.astype(vocabulary.dtype))
    arrays = {"train": data[:at], "valid": data[at : at + held_out], "test": data[at + held_out :]}
    return Prepared(arrays, {"vocabulary": vocabulary.fields()})


def _translated(data: NDArray[np.uint8], numbers: NDArray[Any]) -> NDArray[Any]:
    """Each byte's number; written over the bytes where it fits, to hold a large text in memory only once."""
    if numbers.dtype != np.uint8:  # more than 254 different bytes, besides padding and unknown
        return numbers[data]
    for start in range(0, len(data), CHUNK):
        data[start : start + CHUNK] = numbers[data[start : start + CHUNK]]
    return data


def from_prepared(ready: Prepared) -> Text:
    """The set, from its prepared form."""
    vocabulary = Vocabulary.from_fields(ready.about["vocabulary"], Path("prepared form"))
    return Text(**{split: ready.arrays[split] for split in SPLITS}, vocabulary=vocabulary)
