"""MIDI files: pieces written, and prompts read. Files come from outside: nothing in one is taken on trust."""

import io
import math
import re
from pathlib import Path

import mido
import numpy as np

from rru.data import DataError
from rru.data.streams import whole_file
from rru.generate.music import KEYS, Piece, Roll, notes
from rru.generate.output import write_files

LOWEST = 21  # the MIDI note of the first key
TICKS = 480  # in a quarter note
TEMPO = 80  # quarter notes in a minute
VELOCITY = 80
FILE_LIMIT = 1 << 20  # bytes
STEP_LIMIT = 4096
_ENDLESS = re.compile(rb"[\x80-\xff]{2048}")  # read as one number a long one takes minutes; right are four bytes


def midi(piece: Piece) -> bytes:
    """A piece as a MIDI file of one track; a key that sounds on is one long note."""
    step = TICKS // piece.steps_per_beat
    changes = []  # time, whether it begins (ends come first), key
    for key, start, length in notes(piece.roll):
        changes += [(start * step, 1, key), ((start + length) * step, 0, key)]
    track = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=mido.bpm2tempo(TEMPO))])
    now = 0
    for time, begins, key in sorted(changes):
        kind = "note_on" if begins else "note_off"
        track.append(mido.Message(kind, note=LOWEST + key, velocity=VELOCITY if begins else 0, time=time - now))
        now = time
    track.append(mido.MetaMessage("end_of_track", time=len(piece.roll) * step - now))
    content = io.BytesIO()
    mido.MidiFile(type=0, ticks_per_beat=TICKS, tracks=[track]).save(file=content)
    return content.getvalue()


def write_midi(piece: Piece, path: Path) -> None:
    """Writes a piece as a MIDI file, whole or not at all."""
    write_files({path: midi(piece)})


def read_midi(path: Path, steps_per_beat: int, *, gaps: bool = False) -> Roll:
    """The piano roll of a MIDI file, (T, 88); a `DataError` if it has none.

    A key sounds on every step in whose middle it is held, and at least on one. Drums are left out.

    **Arguments:**

    - `path`: the file.
    - `steps_per_beat`: steps of the roll to a quarter note.
    - `gaps`: whether steps without a note stay; models are trained without.
    """
    held, ticks = _held(path)
    step = ticks / steps_per_beat
    length = max((end for _, _, end in held), default=0)
    if length / step > STEP_LIMIT:
        raise DataError(path, f"must be at most {STEP_LIMIT} steps long, has {length / step:.0f}")
    roll = np.zeros((int(np.ceil(length / step)) + 1, KEYS), np.uint8)
    outside = 0
    for note, start, end in held:
        if not LOWEST <= note < LOWEST + KEYS:
            outside += 1
            continue
        first = math.ceil(start / step - 0.5)
        roll[first : max(math.ceil(end / step - 0.5), first + 1), note - LOWEST] = 1
    sounding = np.flatnonzero(roll.any(1))
    if not len(sounding):
        why = f"all {outside} notes are outside" if outside else "it has no notes"
        raise DataError(path, f"must have notes from {LOWEST} to {LOWEST + KEYS - 1}; {why}")
    return roll[: sounding[-1] + 1] if gaps else roll[sounding]


def _held(path: Path) -> tuple[list[tuple[int, float, float]], int]:
    """Each note's number, and when it begins and ends, in ticks; and the ticks in a quarter note."""
    content = whole_file(path, FILE_LIMIT)
    if _ENDLESS.search(content):
        raise DataError(path, "is not a MIDI file that can be read (a number in it has thousands of bytes)")
    try:
        file = mido.MidiFile(file=io.BytesIO(content), clip=True)
        ticks = int(file.ticks_per_beat)
        messages = [message for number, track in enumerate(file.tracks) for message in _timed(track, number)]
    except Exception as error:  # mido has no error of its own: damaged files give any
        reason = str(error) or "ends too early"
        raise DataError(path, f"is not a MIDI file that can be read ({type(error).__name__}: {reason})") from error
    if not 0 < ticks < 1 << 15:
        raise DataError(path, f"must count time in ticks of a quarter note, from 1 to 32767; got {ticks}")
    open_notes: dict[tuple[int, int, int], float] = {}  # voices may share a channel, each with a track of its own
    held = []
    for time, track, message in sorted(messages, key=lambda timed: timed[0]):
        if message.type not in ("note_on", "note_off") or message.channel == 9:
            continue
        place = (track, message.channel, message.note)
        if place in open_notes:
            held.append((message.note, open_notes.pop(place), time))
        if message.type == "note_on" and message.velocity > 0:
            open_notes[place] = time
    last = max((time for time, _, _ in messages), default=0)
    held += [(note, start, last) for (_, _, note), start in open_notes.items()]
    return held, ticks


def _timed(track: mido.MidiTrack, number: int) -> list[tuple[float, int, mido.Message]]:
    now, timed = 0.0, []
    for message in track:
        now += message.time
        timed.append((now, number, message))
    return timed
