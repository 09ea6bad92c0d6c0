"""Text data sets as token ids: the Penn Treebank by words or characters, enwik8 and text8 by bytes."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.folder import Found, Part
from rru.data.sets import SPLITS, Text
from rru.data.streams import decode_text, read_part
from rru.data.tar import CHUNK
from rru.data.vocabulary import Tokens, Vocabulary

LINE_END = "<eos>"
TREEBANK_LIMIT = 1 << 25  # bytes per file
BYTES_LIMIT = 1 << 28


def prepare_words(files: Found, options: Mapping[str, bool]) -> Prepared:
    """Encode Penn Treebank words. Line ends are dropped; with `line_ends`, each is the word <eos>."""
    texts = [_read_treebank(part, options) for part in files.parts]
    if options["line_ends"]:
        texts = [text.replace("\n", f" {LINE_END} ") for text in texts]
    return _encode([text.split() for text in texts], "words")


def prepare_characters(files: Found, options: Mapping[str, bool]) -> Prepared:
    """Encode Penn Treebank characters, as in the published character files."""
    texts = [_read_treebank(part, options) for part in files.parts]
    return _encode([published_characters(text).split() for text in texts], "characters")


def published_characters(words: str) -> str:
    """Convert the file of words to the published character file: characters separated by spaces, a space as `_`."""
    lines = words.removesuffix("\n").split("\n")
    return "".join(" ".join(line.strip().replace(" ", "_")) + " \n " for line in lines)


def _read_treebank(part: Part, options: Mapping[str, bool]) -> str:
    data = read_part(part, TREEBANK_LIMIT, options["verify"])
    text = decode_text(data, part.path, f"member {part.member}" if part.member else "")
    if not text.strip():
        raise DataError(part.path, "must have at least one word, got none")
    return text


def _encode(splits: list[list[str]], kind: str) -> Prepared:
    """Encode tokens. Ids follow the frequency in the training split."""
    counts = Counter(splits[0])
    vocabulary = Vocabulary.of(sorted(counts, key=lambda token: (-counts[token], token)), kind)
    arrays = {name: vocabulary.numbers(tokens) for name, tokens in zip(SPLITS, splits, strict=True)}
    return Prepared(arrays, {"vocabulary": vocabulary.fields()})


def prepare_bytes(files: Found, options: Mapping[str, bool]) -> Prepared:
    """Encode a text by bytes, split 90/5/5 in order. The vocabulary is the bytes of the training split."""
    (part,) = files.parts
    data = np.frombuffer(read_part(part, BYTES_LIMIT, options["verify"]), np.uint8)
    held_out = len(data) // 20
    if held_out == 0:
        raise DataError(part.path, f"must have at least 20 bytes to be split 90/5/5, got {len(data)}")
    train = len(data) - 2 * held_out
    counts = np.zeros(256, np.int64)
    for start in range(0, train, CHUNK):  # in chunks: bincount converts its input to int64
        counts += np.bincount(data[start : min(start + CHUNK, train)], minlength=256)
    seen = np.flatnonzero(counts)
    vocabulary = Vocabulary.of(map(chr, seen), "bytes")
    token_of_byte = np.full(256, vocabulary.unknown, np.uint16)
    token_of_byte[seen] = np.arange(len(vocabulary) - len(seen), len(vocabulary))
    tokens = _map_bytes(data, token_of_byte.astype(vocabulary.dtype))
    arrays = {"train": tokens[:train], "valid": tokens[train : train + held_out], "test": tokens[train + held_out :]}
    return Prepared(arrays, {"vocabulary": vocabulary.fields()})


def _map_bytes(data: NDArray[np.uint8], token_of_byte: Tokens) -> Tokens:
    """Map bytes to token ids, in place if they fit in a byte, so that a large text is in memory only once."""
    if token_of_byte.dtype != np.uint8:  # more than 254 different bytes, plus padding and unknown
        return token_of_byte[data]
    for start in range(0, len(data), CHUNK):
        data[start : start + CHUNK] = token_of_byte[data[start : start + CHUNK]]
    return data


def from_prepared(ready: Prepared) -> Text:
    """Build the data set from cached arrays."""
    vocabulary = Vocabulary.from_fields(ready.about["vocabulary"], Path("cached arrays"))
    return Text(**{split: ready.arrays[split] for split in SPLITS}, vocabulary=vocabulary)
