"""Vocabularies: map tokens to ids and back. A run saves its vocabulary with its weights."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.streams import data_errors, read_file
from rru.files import parse_json, write_file

Tokens = NDArray[np.unsignedinteger]
"""Token ids, of the smallest type that holds the vocabulary."""

PADDING = "<pad>"
UNKNOWN = "<unk>"
FILE_LIMIT = 1 << 26  # bytes
SHOWN = 10  # tokens
MAX_VALUES = 1_600_000  # in vocabulary.json: a million tokens, some with commas

_KINDS = ("words", "words and punctuation", "characters", "code points", "bytes")
MARKED_WORDS = r"<\w+>|\w+(?:['\u2019-]\w+)*|[^\w\s]"
"""The regular expression of a word or mark, in `words and punctuation`."""
_CLOSING, _OPENING = frozenset(".,;:!?)]}%\u2019\u201d"), frozenset("([{\u201c\u2018")


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """A list of tokens, including one for padding and one for unknown tokens.

    **Arguments:**

    - `tokens`: the tokens; the index of a token is its id. Byte b is stored as `chr(b)`.
    - `kind`: `words` (separated by spaces), `words and punctuation` (every mark is a token too), `characters` (a space
      is `_`), `code points` or `bytes` (of UTF-8).
    - `padding`, `unknown`: the ids of these two tokens.
    """

    tokens: tuple[str, ...]
    kind: str
    padding: int = 0
    unknown: int = 1

    @classmethod
    def of(cls, tokens: Iterable[str], kind: str) -> "Vocabulary":
        """Build a vocabulary: padding, unknown, then the given tokens in order."""
        specials = (PADDING, UNKNOWN)
        return cls(specials + tuple(token for token in tokens if token not in specials), kind)

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"kind must be {' or '.join(map(repr, _KINDS))}, got {self.kind!r}")
        if len(self.ids) != len(self.tokens):
            raise ValueError(f"tokens must be unique, got {len(self.tokens)} tokens, {len(self.ids)} of them unique")
        for name, number in (("padding", self.padding), ("unknown", self.unknown)):
            if not 0 <= number < len(self.tokens):
                raise ValueError(f"{name} must be an id below {len(self.tokens)}, got {number}")

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"<Vocabulary of {len(self):,} {self.kind}: {', '.join(map(repr, self.tokens[:SHOWN]))}, ...>"

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each token."""
        return {token: index for index, token in enumerate(self.tokens)}

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The smallest integer type that holds every id."""
        return np.min_scalar_type(len(self.tokens) - 1)

    def numbers(self, tokens: Sequence[str]) -> Tokens:
        """Return the ids of tokens, (len(tokens),)."""
        ids, unknown = self.ids, self.unknown
        return np.fromiter((ids.get(token, unknown) for token in tokens), self.dtype, len(tokens))

    def encode(self, text: str) -> Tokens:
        """Split a text into tokens and return their ids, (T,)."""
        return self.numbers(tokens_of(text, self.kind))

    def decode(self, ids: Iterable[int] | NDArray[np.integer]) -> str:
        """Return the text of ids (T,), without padding."""
        numbers = ids.tolist() if isinstance(ids, np.ndarray) else ids  # iterating over a NumPy array is slow
        tokens = [self.tokens[number] for number in numbers if number != self.padding]
        if self.kind == "words":
            return " ".join(tokens)
        if self.kind == "words and punctuation":
            return _spaced(tokens)
        if self.kind == "characters":
            return "".join(tokens).replace("_", " ")
        if self.kind == "code points":
            return "".join(tokens)
        unknown = self.tokens[self.unknown]
        data = b"".join(token.encode("utf-8" if token == unknown else "latin-1") for token in tokens)
        return data.decode("utf-8", errors="replace")

    def spaced(self, token: int) -> bool:
        """Return whether a token is written with a space before it."""
        words = self.kind in ("words", "words and punctuation")
        return words and not (self.kind != "words" and self.tokens[token] in _CLOSING)

    def fields(self) -> dict[str, object]:
        """Return the vocabulary as a JSON object."""
        return {"kind": self.kind, "padding": self.padding, "unknown": self.unknown, "tokens": list(self.tokens)}

    def save(self, path: Path | str) -> None:
        """Write the vocabulary to a JSON file, atomically."""
        write_file(Path(path), f"{json.dumps(self.fields())}\n".encode("ascii"))

    @classmethod
    def load(cls, path: Path | str) -> "Vocabulary":
        """Read a vocabulary that `save` wrote. Raise DataError if the file is damaged."""
        path = Path(path)
        data = read_file(path, FILE_LIMIT)
        with data_errors(path):
            return cls.from_fields(parse_json(data, MAX_VALUES), path)

    @classmethod
    def from_fields(cls, fields: object, file: Path | str) -> "Vocabulary":
        """Build a vocabulary from a JSON object; `file` is named in errors."""
        if not isinstance(fields, dict) or set(fields) != {"kind", "padding", "unknown", "tokens"}:
            raise DataError(file, "must be an object with kind, padding, unknown and tokens")
        tokens, numbers = fields["tokens"], (fields["padding"], fields["unknown"])
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise DataError(file, "tokens must be a list of strings")
        if not all(type(number) is int for number in numbers):
            raise DataError(file, f"padding and unknown must be integers, got {numbers}")
        return cls(tuple(tokens), fields["kind"], *numbers)


def tokens_of(text: str, kind: str) -> Sequence[str]:
    """Divide a text into tokens, for a vocabulary of this kind."""
    if kind == "words":
        return text.split()
    if kind == "words and punctuation":
        return re.findall(MARKED_WORDS, text)
    if kind == "characters":
        return text.replace(" ", "_")
    return text if kind == "code points" else text.encode("utf-8").decode("latin-1")


def _spaced(tokens: Sequence[str]) -> str:
    """Join words and marks, without a space before a closing mark or after an opening one."""
    text = ""
    for before, token in zip(["", *tokens], tokens, strict=False):
        text += token if not text or token in _CLOSING or before in _OPENING else f" {token}"
    return text
