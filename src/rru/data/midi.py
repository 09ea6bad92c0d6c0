"""Read MIDI files as piano rolls. Safe for untrusted files."""

import io
import itertools
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.sets import KEYS, LOWEST_NOTE
from rru.data.streams import read_file
from rru.extras import extra

FILE_LIMIT = 1 << 20  # bytes
STEP_LIMIT = 4096
DRUM_CHANNEL = 9
MAX_PARTS = 4  # of a step
OFF_GRID = 0.05  # of a step: how far from the grid a note may start or end
_HUGE_NUMBER = re.compile(rb"[\x80-\xff]{2048}")  # valid numbers have 4 bytes; mido takes minutes for this

Roll = NDArray[np.uint8]
Timed = tuple[float, int, Any]  # tick, number of the track, message of mido, which has no types


@dataclass(frozen=True)
class Notes:
    """The notes of a MIDI file.

    **Arguments:**

    - `held`: MIDI note, start and end of each, in ticks.
    - `ticks`: ticks per quarter note.
    - `drums`: the number of notes for drums, which are left out.
    - `tempos`: the number of tempo changes. Time is counted in beats, so they do not matter.
    - `bars`: the quarter notes per bar of each time signature, in order.
    """

    held: list[tuple[int, float, float]]
    ticks: int
    drums: int = 0
    tempos: int = 0
    bars: tuple[float, ...] = ()

    @property
    def outside(self) -> int:
        """The number of notes that are not among the 88 keys of a piano."""
        return sum(not LOWEST_NOTE <= note < LOWEST_NOTE + KEYS for note, _, _ in self.held)


def read_midi(path: Path | str, steps_per_beat: int, *, gaps: bool = False) -> Roll:
    """Read a MIDI file as a piano roll, (T, 88).

    A key sounds on the steps whose midpoint it is held at, and on at least one step. Drums are ignored.

    **Arguments:**

    - `path`: the file.
    - `steps_per_beat`: steps per quarter note.
    - `gaps`: whether to keep steps without a note. The catalogue's models are trained without them.

    **Raises:** `DataError` if the file cannot be read, is too long or has no notes on the keyboard.
    """
    if not Path(path).exists():
        raise DataError(path, "does not exist")
    roll = roll_of(notes_in(read_file(Path(path), FILE_LIMIT), path), steps_per_beat, path)
    return roll if gaps else roll[roll.any(axis=1)]


def roll_of(
    notes: Notes, steps_per_beat: int, file: Path | str, limit: int = STEP_LIMIT, *, separate: bool = False
) -> Roll:
    """Return notes as a piano roll (T, 88) that ends with the last note; see `read_midi`.

    **Arguments:**

    - `limit`: the most steps.
    - `separate`: whether a key that is struck again at once is silent for one step before, so that two notes differ
      from a tied one. A note of a single step cannot be shortened.
    """
    step = notes.ticks / steps_per_beat
    length = max((end for _, _, end in notes.held), default=0)
    if length / step > limit:
        raise DataError(file, f"must have at most {limit} steps, got {length / step:.0f}")
    roll = np.zeros((int(np.ceil(length / step)) + 1, KEYS), np.uint8)
    last: dict[int, tuple[int, int]] = {}  # first step of the last note of each key, and the step after it
    for note, start, end in sorted(notes.held, key=lambda note: note[1]):
        if not LOWEST_NOTE <= note < LOWEST_NOTE + KEYS:
            continue
        first = math.ceil(start / step - 0.5)
        after = max(math.ceil(end / step - 0.5), first + 1)
        roll[first:after, note - LOWEST_NOTE] = 1
        began, ended = last.get(note, (first, first))
        if separate and ended == first and began < first - 1:
            roll[first - 1, note - LOWEST_NOTE] = 0
        last[note] = (first, after)
    sounding = np.flatnonzero(roll.any(1))
    if not len(sounding):
        got = f"all {notes.outside} notes are outside" if notes.outside else "it has no notes"
        raise DataError(file, f"must have notes from {LOWEST_NOTE} to {LOWEST_NOTE + KEYS - 1}; {got}")
    return roll[: sounding[-1] + 1]


def grid(path: Path, steps_per_beat: int) -> int:
    """Return how many parts to divide a step into, so that the notes of a MIDI file fit the grid.

    This is the smallest number, up to `MAX_PARTS`, with which all notes start and end on the grid. If there is none,
    because notes are often shortened a little, only the starts count. A recording fits no grid and gets `MAX_PARTS`.

    **Arguments:** see `read_midi`.
    """
    notes = notes_in(read_file(path, FILE_LIMIT), path)
    if not notes.held:
        return 1
    times_in_ticks = zip(*(note[1:] for note in notes.held), strict=True)
    starts, ends = (np.array(times) * steps_per_beat / notes.ticks for times in times_in_ticks)
    for times in (np.concatenate([starts, ends]), starts):
        for parts in range(1, MAX_PARTS + 1):
            if (np.abs(times - np.round(times * parts) / parts) < OFF_GRID).all():
                return parts
    return MAX_PARTS


def notes_in(content: bytes, file: Path | str) -> Notes:
    """Return the notes in the content of a MIDI file. Raise DataError, naming `file`, if it is not one."""
    with extra("train"):
        import mido
    if _HUGE_NUMBER.search(content):
        raise DataError(file, "is not a valid MIDI file (a number in it has thousands of bytes)")
    try:
        parsed = mido.MidiFile(file=io.BytesIO(content), clip=True)
        ticks = int(parsed.ticks_per_beat)
        messages: list[Timed] = [
            (tick, number, message)
            for number, track in enumerate(parsed.tracks)
            for tick, message in zip(itertools.accumulate(message.time for message in track), track, strict=True)
        ]
    except Exception as error:  # mido raises any exception for damaged files
        reason = str(error) or "truncated"
        raise DataError(file, f"is not a valid MIDI file ({type(error).__name__}: {reason})") from error
    if not 0 < ticks < 1 << 15:
        raise DataError(file, f"ticks per quarter note must be from 1 to 32767, got {ticks}")
    messages.sort(key=lambda timed: timed[0])
    kinds = [message.type for _, _, message in messages]
    signatures = [message for _, _, message in messages if message.type == "time_signature"]
    return Notes(
        _held(messages),
        ticks,
        drums=sum(message.type == "note_on" and message.channel == DRUM_CHANNEL for _, _, message in messages),
        tempos=max(kinds.count("set_tempo") - 1, 0),
        bars=tuple(4 * message.numerator / message.denominator for message in signatures),
    )


def _held(messages: list[Timed]) -> list[tuple[int, float, float]]:
    """Return note, start and end (in ticks) of every note, from messages in the order of time."""
    open_notes: dict[tuple[int, int, int], float] = {}  # by track too: several tracks may share a channel
    held = []
    for time, track, message in messages:
        if message.type not in ("note_on", "note_off") or message.channel == DRUM_CHANNEL:
            continue
        key = (track, message.channel, message.note)
        if key in open_notes:
            held.append((message.note, open_notes.pop(key), time))
        if message.type == "note_on" and message.velocity > 0:
            open_notes[key] = time
    last = max((time for time, _, _ in messages), default=0)
    return held + [(note, start, last) for (_, _, note), start in open_notes.items()]
