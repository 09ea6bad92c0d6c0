"""Folders and zip archives of MIDI files as piano rolls.

Time is counted in beats: a step is a quarter note divided by `grid`, whatever the tempo. Rests stay in time; silence
before the first and after the last note is left out. Drums and notes outside the 88 keys are left out. A file that
cannot be read is named and skipped.
"""

import hashlib
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rru.data import music
from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.midi import FILE_LIMIT, Notes, Roll, notes_in, roll_of
from rru.data.own.data_json import BEATS_PER_BAR, MusicFacts
from rru.data.own.formats import Candidate, Format
from rru.data.own.source import files_below
from rru.data.own.splits import by_content, described, shared
from rru.data.sets import KEYS, SPLITS
from rru.data.streams import check_zip_directory, data_errors, read_file

if TYPE_CHECKING:
    from rru.data.own import OwnData

SUFFIXES = (".mid", ".midi", ".zip")
GRID = 4  # steps per quarter note
STEP_LIMIT = 1 << 16  # of a piece
TOTAL_LIMIT = 20_000_000  # steps of all pieces
ZIP_LIMIT = 1 << 30  # bytes
NAMED = 3  # skipped files that are named


class _Pieces:
    """Read the pieces at a place, and count what was left out."""

    def __init__(self, grid: int) -> None:
        self.grid = grid
        self.rolls: list[Roll] = []
        self.keys: list[str] = []
        self.skipped: list[str] = []
        self.counts: Counter[str] = Counter()
        self.bars: Counter[float] = Counter()
        self.steps = 0

    def read(self, place: Path) -> None:
        files = files_below(place, SUFFIXES) if place.is_dir() else [place]
        for file in files:
            try:
                for name, content in _contents(file):
                    self._try(name, content)
            except DataError as error:  # the rest of an archive cannot be read
                self.skipped.append(str(error))
        if not self.rolls:
            reason = f"has no MIDI file that can be read: {self.skipped[0]}" if self.skipped else "has no MIDI files"
            raise DataError(place, reason)

    def _try(self, name: str, content: bytes) -> None:
        try:
            self._add(name, content)
        except DataError as error:
            self.skipped.append(str(error))

    def _add(self, name: str, content: bytes) -> None:
        notes = notes_in(content, name)
        roll = roll_of(notes, self.grid, name, STEP_LIMIT, separate=True)
        roll = roll[int(np.flatnonzero(roll.any(axis=1))[0]) :]
        if self.steps + len(roll) > TOTAL_LIMIT:
            raise DataError(name, f"is too much: all files together have more than {TOTAL_LIMIT:,} steps")
        self.steps += len(roll)
        self.rolls.append(roll)
        self.keys.append(melody(roll))
        self._count(notes)

    def _count(self, notes: Notes) -> None:
        self.counts["drum notes"] += notes.drums
        self.counts["notes outside the 88 keys"] += notes.outside
        self.counts["files with tempo changes"] += notes.tempos > 0
        self.counts["files with several time signatures"] += len(set(notes.bars)) > 1
        self.bars[notes.bars[0] if notes.bars else BEATS_PER_BAR] += 1


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of a MIDI file, or of those in a zip archive, in the order of their names."""
    if not zipfile.is_zipfile(path):
        yield str(path), read_file(path, FILE_LIMIT)
        return
    unpacked = 0
    with data_errors(path):
        if path.stat().st_size > ZIP_LIMIT:
            raise DataError(path, f"has more than {ZIP_LIMIT} bytes")
        check_zip_directory(path)
        with zipfile.ZipFile(path) as archive:
            for member in sorted(archive.infolist(), key=lambda each: each.filename):
                if not member.filename.lower().endswith(SUFFIXES[:2]) or "__MACOSX" in member.filename:
                    continue
                small = member.file_size <= FILE_LIMIT
                known = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
                content = b""
                if small and known:
                    unpacked += member.file_size
                    if unpacked > ZIP_LIMIT:  # members can share their content, so a small archive can have many
                        raise DataError(path, f"has more than {ZIP_LIMIT} bytes once unpacked")
                    with archive.open(member) as stream:
                        content = stream.read(FILE_LIMIT)
                yield f"{path}, {member.filename}", content


def melody(roll: Roll) -> str:
    """Return a hash of a piece (T, 88) that is the same in every key."""
    keys = np.flatnonzero(roll.any(axis=0))
    shape = roll[:, keys[0] : keys[-1] + 1]
    return hashlib.sha256(f"{shape.shape}".encode() + np.packbits(shape).tobytes()).hexdigest()


def prepare(own: "OwnData") -> Prepared:
    """Read the pieces of a folder or zip archive, divided by file."""
    grid = own.options.get("grid", GRID)
    splits: dict[str, list[Roll]] = {split: [] for split in SPLITS}
    keys: dict[str, list[str]] = {split: [] for split in SPLITS}
    skipped, counts, bars, copies = list[str](), Counter[str](), Counter[float](), 0
    for split, place in own.places.items():
        pieces = _Pieces(grid)
        pieces.read(place)
        missing = own.missing if split == "train" else ()
        chosen = by_content(pieces.keys, missing, place, "pieces") if split == "train" else [split] * len(pieces.keys)
        for its, roll, key in zip(chosen, pieces.rolls, pieces.keys, strict=True):
            splits[its].append(roll)
            keys[its].append(key)
        skipped += pieces.skipped
        counts += pieces.counts
        bars += pieces.bars
        copies += (len(pieces.keys) - len(set(pieces.keys))) if missing else 0
    arrays: dict[str, NDArray[np.generic]] = {}
    for split, rolls in splits.items():
        arrays[f"{split}_rolls"] = np.concatenate([np.zeros((0, KEYS), np.uint8), *rolls])
        arrays[f"{split}_offsets"] = np.cumsum([0, *map(len, rolls)], dtype=np.int64)
    facts = MusicFacts(
        statistics={
            "pieces": [len(splits[split]) for split in SPLITS],
            "steps": [sum(map(len, splits[split])) for split in SPLITS],
        },
        summary=_summary(own, splits, grid, bars),
        notes=tuple(_notes(skipped, counts, copies, shared(keys))),
        beats_per_bar=bars.most_common(1)[0][0],
    )
    return Prepared(arrays, facts.fields())


def _summary(own: "OwnData", splits: dict[str, list[Roll]], grid: int, bars: Counter[float]) -> str:
    pieces = " / ".join(f"{len(splits[split]):,}" for split in SPLITS)
    steps = " / ".join(f"{sum(map(len, splits[split])):,}" for split in SPLITS)
    how = described(own.places, "by file")
    beat = "quarter note" if grid == 1 else f"quarter note divided by {grid}"
    bar = f"{bars.most_common(1)[0][0]:g}"
    return (
        f"{pieces} pieces with {steps} steps to train, validate and test ({how}); a step is a {beat}, "
        f"a bar mostly {bar} quarter notes"
    )


def _notes(skipped: list[str], counts: Counter[str], copies: int, across: dict[str, int]) -> list[str]:
    notes = [f"skipped: {reason}" for reason in skipped[:NAMED]]
    if len(skipped) > NAMED:
        notes.append(f"skipped: {len(skipped) - NAMED} more files")
    notes += [f"left out: {counts[what]:,} {what}" for what in list(counts)[:2] if counts[what]]
    if counts["files with tempo changes"]:
        notes.append(
            f"{counts['files with tempo changes']} files change tempo; time is counted in beats, so all is well"
        )
    if counts["files with several time signatures"]:
        notes.append(f"{counts['files with several time signatures']} files change the time signature")
    if copies:
        notes.append(f"{copies} pieces are the same as another, or transposed; such pieces are in one split together")
    for split, count in across.items():
        notes.append(
            f"{count} pieces of {split} are also in an earlier split, or the same transposed: scores look better"
        )
    return notes


def _recognise(candidate: Candidate) -> bool:
    path = candidate.path
    if path.is_dir():
        return bool(candidate.suffixes & set(SUFFIXES))
    if candidate.start == b"MThd":
        raise DataError(path, "is one MIDI file; give a folder with several, to train on some and test on others")
    if path.suffix.lower() in SUFFIXES[:2] and "by" not in candidate.options:
        raise DataError(path, "is not a MIDI file, though it is named like one; give --by characters if it is a text")
    return candidate.start == b"PK\3\4"


FORMAT = Format(
    "music",
    "MIDI files",
    music.from_prepared,
    prepare,
    MusicFacts,
    suffixes=SUFFIXES,
    options=("grid",),
    recognise=_recognise,
    prepare_set=music.prepare,
)
