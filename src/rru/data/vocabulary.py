"""Tokens and their numbers, kept with a run so that its text can be turned back."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.streams import reading, whole_file

PADDING = "<pad>"
UNKNOWN = "<unk>"
FILE_LIMIT = 1 << 26  # bytes

_KINDS = ("words", "characters", "bytes")


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by number. `padding` and `unknown` stand for no token and for any other.

    **Arguments:**

    - `tokens`: every token, at its number. A byte is written as the character of the same number.
    - `kind`: `words` (divided by blanks), `characters` (a blank written `_`) or `bytes` (of UTF-8).
    - `padding`, `unknown`: their numbers.
    """

    tokens: tuple[str, ...]
    kind: str
    padding: int = 0
    unknown: int = 1

    @classmethod
    def of(cls, tokens: Iterable[str], kind: str) -> "Vocabulary":
        """A vocabulary of these tokens, in this order, behind padding and unknown."""
        specials = (PADDING, UNKNOWN)
        return cls(specials + tuple(token for token in tokens if token not in specials), kind)

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"kind must be {' or '.join(map(repr, _KINDS))}, got {self.kind!r}")
        if len(self.ids) != len(self.tokens):
            raise ValueError(f"tokens must differ, got {len(self.tokens)} with {len(self.ids)} different ones")
        for name, number in (("padding", self.padding), ("unknown", self.unknown)):
            if not 0 <= number < len(self.tokens):
                raise ValueError(f"{name} must be the number of one of {len(self.tokens)} tokens, got {number}")

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The number of each token."""
        return {token: number for number, token in enumerate(self.tokens)}

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest type that holds every number."""
        return np.min_scalar_type(len(self.tokens) - 1)

    def numbers(self, tokens: Sequence[str]) -> NDArray[Any]:
        """The numbers of tokens, (len(tokens),)."""
        ids, unknown = self.ids, self.unknown
        return np.fromiter((ids.get(token, unknown) for token in tokens), self.dtype, len(tokens))

    def encode(self, text: str) -> NDArray[Any]:
        """The numbers of a text's tokens, (T,)."""
        if self.kind == "words":
            return self.numbers(text.split())
        if self.kind == "characters":
            return self.numbers(text.replace(" ", "_"))
        return self.numbers(text.encode("utf-8").decode("latin-1"))

    def decode(self, ids: Iterable[int] | NDArray[Any]) -> str:
        """The text of numbers (T,); padding is left out."""
        numbers = ids.tolist() if isinstance(ids, np.ndarray) else ids  # NumPy's own numbers are slow one by one
        tokens = [self.tokens[number] for number in numbers if number != self.padding]
        if self.kind == "words":
            return " ".join(tokens)
        if self.kind == "characters":
            return "".join(tokens).replace("_", " ")
        unknown = self.tokens[self.unknown]
        data = b"".join(token.encode("utf-8" if token == unknown else "latin-1") for token in tokens)
        return data.decode("utf-8", errors="replace")

    def fields(self) -> dict[str, Any]:
        """The vocabulary as JSON holds it."""
        return {"kind": self.kind, "padding": self.padding, "unknown": self.unknown, "tokens": list(self.tokens)}

    def save(self, path: Path | str) -> None:
        """Writes the vocabulary as JSON, whole or not at all."""
        path = Path(path)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            unfinished.write_text(json.dumps(self.fields(), ensure_ascii=True) + "\n", encoding="ascii")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path | str) -> "Vocabulary":
        """Reads what `save` wrote."""
        path = Path(path)
        data = whole_file(path, FILE_LIMIT)
        with reading(path):
            return cls.from_fields(json.loads(data), path)

    @classmethod
    def from_fields(cls, fields: Any, file: Path | str) -> "Vocabulary":
        """The vocabulary that JSON fields describe."""
        if not isinstance(fields, dict) or set(fields) != {"kind", "padding", "unknown", "tokens"}:
            raise DataError(file, "must be an object of kind, padding, unknown and tokens")
        tokens, numbers = fields["tokens"], (fields["padding"], fields["unknown"])
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise DataError(file, "tokens must be a list of strings")
        if not all(type(number) is int for number in numbers):
            raise DataError(file, f"padding and unknown must be numbers of tokens, got {numbers}")
        return cls(tuple(tokens), fields["kind"], *numbers)
