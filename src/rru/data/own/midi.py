"""Folders and zip archives of MIDI files as piano rolls.

Time is counted in beats: a step is a quarter note divided by `grid`, whatever the tempo. Rests stay in time; silence
before the first and after the last note is left out. Drums and notes outside the 88 keys are left out. A file that
cannot be read is named and skipped.
"""

import hashlib
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rru.data import music
from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.midi import FILE_LIMIT, Roll, notes_in, roll_of
from rru.data.own.data_json import BEATS_PER_BAR, MusicFacts
from rru.data.own.formats import Candidate, Format
from rru.data.own.source import files_below
from rru.data.own.splits import by_content, copy_notes, described, slashed
from rru.data.sets import KEYS, SPLITS
from rru.data.spelling import option
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
    """The pieces of all places, as piano rolls by split, and what was left out."""

    def __init__(self, grid: int) -> None:
        self.grid = grid
        self.rolls: dict[str, list[Roll]] = {split: [] for split in SPLITS}
        self.keys: dict[str, list[str]] = {}  # by the split that a place is for
        self.skipped: list[str] = []
        self.counts: Counter[str] = Counter()
        self.bars: Counter[float] = Counter()

    def read(self, place: Path, split: str, held_out: Sequence[str]) -> None:
        """Read the pieces of a place for a split, and hold some out for others."""
        rolls, room = list[Roll](), TOTAL_LIMIT
        for file in files_below(place, SUFFIXES) if place.is_dir() else [place]:
            try:
                for name, content in _contents(file):
                    try:
                        rolls.append(self._roll(name, content, room))
                        room -= len(rolls[-1])
                    except DataError as error:
                        self.skipped.append(str(error))
            except DataError as error:  # the rest of an archive cannot be read
                self.skipped.append(str(error))
        if not rolls:
            reason = f"has no MIDI file that can be read: {self.skipped[0]}" if self.skipped else "has no MIDI files"
            raise DataError(place, reason)
        self.keys[split] = [melody(roll) for roll in rolls]
        chosen = by_content(self.keys[split], held_out, place, "pieces")
        for part, roll in zip(chosen, rolls, strict=True):
            self.rolls[part if split == "train" else split].append(roll)

    def _roll(self, name: str, content: bytes, most: int) -> Roll:
        """Return a piece from the bar of its first note on; raise DataError if it has more than `most` steps."""
        notes = notes_in(content, name)
        roll = roll_of(notes, self.grid, name, STEP_LIMIT, separate=True)
        beats_per_bar, first = notes.bars[0] if notes.bars else BEATS_PER_BAR, int(roll.any(axis=1).argmax())
        roll = roll[first - first % (bar_steps(beats_per_bar, self.grid) or 1) :]
        if len(roll) > most:
            raise DataError(name, f"is too much: all files together have more than {TOTAL_LIMIT:,} steps")
        self.counts["drum notes"] += notes.drums
        self.counts["notes outside the 88 keys"] += notes.outside
        self.counts["files with tempo changes"] += notes.tempos > 0
        self.counts["files with several time signatures"] += len(set(notes.bars)) > 1
        self.bars[beats_per_bar] += 1
        return roll

    def notes(self) -> list[str]:
        """Return what the user should know."""
        notes = [f"skipped: {reason}" for reason in self.skipped[:NAMED]]
        if len(self.skipped) > NAMED:
            notes.append(f"skipped: {len(self.skipped) - NAMED} more files")
        notes += [f"left out: {count:,} {what}" for what, count in list(self.counts.items())[:2] if count]
        if tempos := self.counts["files with tempo changes"]:
            notes.append(f"{tempos} files change tempo; time is counted in beats, so all is well")
        if signatures := self.counts["files with several time signatures"]:
            notes.append(f"{signatures} files change the time signature")
        return notes + copy_notes(self.keys, "pieces", transposed=True)


def rolls_in(place: Path, grid: int) -> list[Roll]:
    """Return the pieces (T, 88) in a MIDI file, a folder or a zip archive; `grid` is the steps per quarter note."""
    pieces = _Pieces(grid)
    pieces.read(place, "test", ())
    return pieces.rolls["test"]


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


def bar_steps(beats_per_bar: float, grid: int) -> int:
    """Return the steps of a bar, or of two if only these are whole; 0 if neither is."""
    return next((round(steps) for steps in (beats_per_bar * grid, 2 * beats_per_bar * grid) if steps % 1 == 0), 0)


def melody(roll: Roll) -> str:
    """Return a hash of a piece (T, 88) that is the same in every key, and after any silence."""
    keys = np.flatnonzero(roll.any(axis=0))
    shape = roll[roll.any(axis=1).argmax() :, keys[0] : keys[-1] + 1]
    return hashlib.sha256(f"{shape.shape}".encode() + np.packbits(shape).tobytes()).hexdigest()


def prepare(own: "OwnData") -> Prepared:
    """Read the pieces of a folder or zip archive, divided by file."""
    pieces = _Pieces(own.options.get("grid", GRID))
    for split, place in own.places.items():
        pieces.read(place, split, own.missing if split == "train" else ())
    arrays: dict[str, NDArray[np.generic]] = {}
    for split, rolls in pieces.rolls.items():
        arrays[f"{split}_rolls"] = np.concatenate([np.zeros((0, KEYS), np.uint8), *rolls])
        arrays[f"{split}_offsets"] = np.cumsum([0, *map(len, rolls)], dtype=np.int64)
    counts = [len(rolls) for rolls in pieces.rolls.values()]
    steps = [len(arrays[f"{split}_rolls"]) for split in SPLITS]
    beat = "quarter note" if pieces.grid == 1 else f"quarter note divided by {pieces.grid}"
    ((beats_per_bar, _),) = pieces.bars.most_common(1)
    facts = MusicFacts(
        statistics={"pieces": counts, "steps": steps, "bar": bar_steps(beats_per_bar, pieces.grid)},
        summary=f"{slashed(counts)} pieces with {slashed(steps)} steps to train, validate and test "
        f"({described(own.places, 'by file')}); a step is a {beat}, a bar mostly {beats_per_bar:g} quarter notes",
        notes=tuple(pieces.notes()),
        beats_per_bar=beats_per_bar,
    )
    return Prepared(arrays, facts.fields())


def _recognise(candidate: Candidate) -> bool:
    path = candidate.path
    if path.is_dir():
        return bool(candidate.suffixes & set(SUFFIXES))
    if candidate.start == b"MThd":
        raise DataError(path, "is one MIDI file; give a folder with several, to train on some and test on others")
    if path.suffix.lower() in SUFFIXES[:2] and "by" not in candidate.options:
        advice = f"give {option('by', 'characters')} if it is a text"
        raise DataError(path, f"is not a MIDI file, though it is named like one; {advice}")
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
