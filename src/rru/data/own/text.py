"""Texts as token ids, by characters, words or bytes. Files are read a piece at a time, so they may be of any size.

Characters are the code points that the training part uses. Bytes are those of the file. Words are made by one of two
tokenizers: `spaces` takes what stands between white space, for texts that are already divided into tokens;
`punctuation` also takes every mark on its own, so that `said,` is `said` and `,`. The vocabulary is the most frequent
words of the training part; others are unknown, and so are words that occur only once unless the text has <unk>.
"""

import codecs
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rru.data import text
from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.own.data_json import Facts
from rru.data.own.formats import Format, Options
from rru.data.own.source import check_place, chunks, files_below, fingerprint
from rru.data.own.splits import by_content, by_position, copy_notes, described, slashed
from rru.data.sets import SPLITS
from rru.data.spelling import option
from rru.data.text import LINE_END
from rru.data.vocabulary import UNKNOWN, Tokens, Vocabulary, tokens_of

if TYPE_CHECKING:
    from rru.data.own import OwnData

SUFFIXES = (".txt", ".text", ".md", "")
VOCABULARY = 10_000
MIN_BYTES = 200  # bytes of a text
MAX_WORD = 1 << 16  # characters
MAX_WORDS = 4_000_000  # different words that are counted; if there are more, the rare ones are forgotten
CODE_POINTS = 0x110000
BLOCK = 1 << 22  # tokens
SAMPLE = 1 << 20  # bytes that tell which tokenizer to use

ByteRange = tuple[Path, int, int]  # file, first byte, last byte
Codes = Callable[[Iterable[ByteRange]], Iterator[NDArray[np.unsignedinteger]]]


def prepare_characters(own: "OwnData") -> Prepared:
    """Encode a text by code points; the vocabulary has the most frequent first."""
    return _prepare_codes(
        own,
        "characters",
        lambda parts: (np.frombuffer(piece.encode("utf-32-le"), np.uint32) for piece in _pieces(parts)),
    )


def prepare_bytes(own: "OwnData") -> Prepared:
    """Encode a text by bytes, whatever they are."""
    return _prepare_codes(
        own, "bytes", lambda parts: (np.frombuffer(chunk, np.uint8) for part in parts for chunk in chunks(*part))
    )


def _prepare_codes(own: "OwnData", by: str, codes: Codes) -> Prepared:
    """Encode a text whose tokens are numbers; `codes` yields those in parts of files, a piece at a time."""
    parts, counts = _parts(own), np.zeros(CODE_POINTS, np.int64)
    for piece in codes(parts["train"]):
        in_piece = np.bincount(piece)
        counts[: len(in_piece)] += in_piece
    used = np.flatnonzero(counts)
    if by == "characters":
        used = used[np.argsort(-counts[used], kind="stable")]
    vocabulary = Vocabulary.of(map(chr, used), "code points" if by == "characters" else by)
    table = np.full(CODE_POINTS, vocabulary.unknown, vocabulary.dtype)
    table[used] = np.arange(len(vocabulary) - len(used), len(vocabulary))
    arrays = {split: _joined((table[piece] for piece in codes(part)), table.dtype) for split, part in parts.items()}
    return _described(arrays, vocabulary, by, own)


def prepare_words(own: "OwnData") -> Prepared:
    """Encode a text by words. Line ends are dropped; with `line_ends`, each is the word <eos>."""
    parts, kind = _parts(own), own.options["tokenizer"]
    vocabulary_kind = "words" if kind == "spaces" else "words and punctuation"
    ends, counts = bool(own.options.get("line_ends")), Counter[str]()

    def words(piece: str) -> Sequence[str]:
        return tokens_of(piece.replace("\n", f" {LINE_END} ") if ends else piece, vocabulary_kind)

    for piece in _pieces(parts["train"], whole_words=True):
        counts.update(words(piece))
        if len(counts) > MAX_WORDS:
            counts = Counter(dict(counts.most_common(MAX_WORDS // 2)))
    vocabulary = frequent_words(counts, own.options.get("vocabulary", VOCABULARY), vocabulary_kind)
    arrays = {
        split: _joined(
            (vocabulary.numbers(words(piece)) for piece in _pieces(part, whole_words=True)), vocabulary.dtype
        )
        for split, part in parts.items()
    }
    return _described(arrays, vocabulary, "words", own)


def frequent_words(counts: Counter[str], most: int, kind: str) -> Vocabulary:
    """Return the vocabulary of the `most` frequent words.

    Words that occur only once are unknown, so that a model learns what unknown words are like; unless the text already
    has <unk> for them.
    """
    least = 1 if UNKNOWN in counts else 2
    known = [word for word, count in counts.items() if count >= least]
    return Vocabulary.of(sorted(known, key=lambda word: (-counts[word], word))[:most], kind)


def tokenizer_for(path: Path) -> str:
    """Return the tokenizer for a text: `spaces` if its beginning has marks that stand alone, else `punctuation`."""
    files = files_below(path, SUFFIXES) if path.is_dir() else [path]
    file = next((file for file in files if file.stat().st_size), files[0])
    with file.open("rb") as stream:
        words = stream.read(SAMPLE).decode("utf-8", "ignore").split()
    alone = sum(re.fullmatch(r"[.,;:!?]|<unk>", word) is not None for word in words)
    attached = sum(re.fullmatch(r"\w.*[,;:!?]", word) is not None for word in words)
    return "spaces" if alone > attached else "punctuation"


def encoded(path: Path, vocabulary: Vocabulary, *, line_ends: bool = False) -> Tokens:
    """Return the tokens (T,) of a file, or of the files in a folder, in the vocabulary of a trained model.

    **Arguments:** `line_ends`: whether the end of a line is the word <eos>.
    """
    check_place(path)
    files = files_below(path, SUFFIXES) if path.is_dir() else [path]
    parts = [(file, 0, file.stat().st_size) for file in files]
    if vocabulary.kind == "bytes":
        pieces = (vocabulary.numbers(chunk.decode("latin-1")) for part in parts for chunk in chunks(*part))
    else:
        whole_words = vocabulary.kind.startswith("words")
        pieces = (encoded_text(piece, vocabulary, line_ends=line_ends) for piece in _pieces(parts, whole_words))
    return _joined(pieces, vocabulary.dtype)


def encoded_text(text: str, vocabulary: Vocabulary, *, line_ends: bool = False) -> Tokens:
    """Return the tokens (T,) of a text; see `encoded`."""
    return vocabulary.encode(text.replace("\n", f" {LINE_END} ") if line_ends else text)


def _parts(own: "OwnData") -> dict[str, list[ByteRange]]:
    """Return the parts of files that each split has: of one file by position, of a folder by file."""
    splits: dict[str, list[ByteRange]] = {split: [] for split in SPLITS}
    for split, place in own.places.items():
        held_out = own.missing if split == "train" else ()
        if place.is_dir():
            files = _hashed(place)
            chosen = by_content(list(files.values()), held_out, place, "files")
            ranges = [(part, (file, 0, file.stat().st_size)) for file, part in zip(files, chosen, strict=True)]
        else:
            if (size := place.stat().st_size) < MIN_BYTES:
                raise DataError(place, f"must have at least {MIN_BYTES} bytes of text, got {size}")
            ranges = [(part, (place, *ends)) for part, ends in by_position(place, size, held_out).items()]
        for part, byte_range in ranges:
            splits[part if split == "train" else split].append(byte_range)
    return splits


def _hashed(folder: Path) -> dict[Path, str]:
    """Return the hash of each text file below a folder that is not empty."""
    return {file: fingerprint(file, SUFFIXES).hash for file in files_below(folder, SUFFIXES) if file.stat().st_size}


def _pieces(parts: Iterable[ByteRange], whole_words: bool = False) -> Iterator[str]:
    """Yield the text of parts of files, a piece at a time; raise DataError where it is not UTF-8, or binary."""
    for number, (path, start, end) in enumerate(parts):
        decoder, done, tail = codecs.getincrementaldecoder("utf-8")(), start, "\n" if number else ""
        for chunk in chunks(path, start, end):
            _check(chunk, path, done)
            try:
                piece = decoder.decode(chunk)
            except UnicodeDecodeError as error:
                at = done - len(decoder.getstate()[0]) + error.start
                advice = f"save it as UTF-8, for example with `iconv -f latin1 -t utf-8`, or {_as_bytes()}"
                raise DataError(path, f"is not UTF-8 text: {error.reason}; {advice}", f"offset {at}") from error
            tail += piece.removeprefix("\ufeff") if done == 0 else piece
            done += len(chunk)
            cut = max(tail.rfind(space) for space in " \n\t") + 1 if whole_words else len(tail)
            if cut:
                yield tail[:cut]
                tail = tail[cut:]
            if len(tail) > MAX_WORD:
                raise DataError(path, f"has a word of more than {MAX_WORD} characters; is it text?", f"offset {done}")
        if decoder.getstate()[0]:
            raise DataError(path, "is not UTF-8 text: it ends within a character", f"offset {done}")
        if tail:
            yield tail


def _check(chunk: bytes, path: Path, offset: int) -> None:
    if offset == 0 and chunk[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(path, "is UTF-16 text; save it as UTF-8, for example with `iconv -f utf-16 -t utf-8`")
    if (zero := chunk.find(b"\0")) >= 0:
        raise DataError(path, f"is binary, not text: it has a zero byte; {_as_bytes()}", f"offset {offset + zero}")


def _as_bytes() -> str:
    return f"read it with {option('by', 'bytes')}"


def _joined(pieces: Iterable[Tokens], dtype: np.dtype[np.unsignedinteger]) -> Tokens:
    """Join arrays in a temporary file, which is gone when the result is; a large text does not fit in memory."""
    with tempfile.TemporaryFile() as file:
        for piece in pieces:
            file.write(piece.tobytes())
        file.flush()
        if not file.tell():
            return np.zeros(0, dtype)
        return np.memmap(file, dtype, "r")


def _share(array: Tokens, token: int) -> float:
    """Return the share of a token, a block at a time: the array may be larger than memory."""
    blocks = range(0, len(array), BLOCK)
    return sum(int(np.count_nonzero(array[start : start + BLOCK] == token)) for start in blocks) / len(array)


def _described(arrays: dict[str, Tokens], vocabulary: Vocabulary, by: str, own: "OwnData") -> Prepared:
    counts = [len(arrays[split]) for split in SPLITS]
    if min(counts) < 2:
        raise DataError(own.path, f"must have at least 2 {by} to train, validate and test on each, got {counts}")
    unknown = {split: _share(arrays[split], vocabulary.unknown) for split in SPLITS}
    split = described(own.places, "by file" if own.path.is_dir() else "by position")
    summary = f"{slashed(counts)} {by} to train, validate and test ({split}); vocabulary {len(vocabulary):,}"
    if any(unknown.values()):
        summary += f"; unknown {' / '.join(f'{unknown[split]:.2%}' for split in SPLITS)}"
    statistics = {"tokens": counts, "vocabulary": len(vocabulary)}
    hashes = {
        split: list(_hashed(place).values()) if place.is_dir() else [own.fingerprints[split].hash]
        for split, place in own.places.items()
    }
    facts = Facts(statistics=statistics, summary=summary, notes=tuple(copy_notes(hashes, "files")))
    return Prepared(arrays, facts.fields() | {"vocabulary": vocabulary.fields()})


def _complete_words(path: Path, options: Options) -> Options:
    if "tokenizer" in options:
        return options
    check_place(path)
    return {"tokenizer": tokenizer_for(path), **options}


CHARACTERS = Format(
    "characters",
    "text by characters",
    text.from_prepared,
    prepare_characters,
    suffixes=SUFFIXES,
    prepare_set=text.prepare_characters,
)
WORDS = Format(
    "words",
    "text by words",
    text.from_prepared,
    prepare_words,
    suffixes=SUFFIXES,
    options=("tokenizer", "vocabulary"),
    complete=_complete_words,
    prepare_set=text.prepare_words,
    set_options={"line_ends": False},
)
BYTES = Format(
    "bytes", "text by bytes", text.from_prepared, prepare_bytes, suffixes=SUFFIXES, prepare_set=text.prepare_bytes
)
