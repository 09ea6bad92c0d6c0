"""Write pieces to MIDI files; `rru.data.midi` reads them."""

import io
from pathlib import Path

from rru.data import LOWEST_NOTE
from rru.extras import extra
from rru.inference.music import Piece, notes
from rru.inference.output import write_files

TICKS_PER_BEAT = 480
TEMPO = 80  # quarter notes per minute
VELOCITY = 80


def midi(piece: Piece) -> bytes:
    """Return a piece as the bytes of a MIDI file with one track. Held keys are one long note."""
    step = max(TICKS_PER_BEAT // piece.steps_per_beat, 1)
    ticks = step * piece.steps_per_beat  # a whole number of steps, also if 480 is not
    with extra("train"):
        import mido
    changes = []  # (time, 1 for note on or 0 for note off, key); sorted, note off comes first
    for key, start, length in notes(piece.roll):
        changes += [(start * step, 1, key), ((start + length) * step, 0, key)]
    track = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=mido.bpm2tempo(TEMPO))])
    now = 0
    for time, on, key in sorted(changes):
        kind, velocity = ("note_on", VELOCITY) if on else ("note_off", 0)
        track.append(mido.Message(kind, note=LOWEST_NOTE + key, velocity=velocity, time=time - now))
        now = time
    track.append(mido.MetaMessage("end_of_track", time=len(piece.roll) * step - now))
    content = io.BytesIO()
    mido.MidiFile(type=0, ticks_per_beat=ticks, tracks=[track]).save(file=content)
    return content.getvalue()


def write_midi(piece: Piece, path: Path) -> None:
    """Write a piece to a MIDI file, atomically."""
    write_files({path: midi(piece)})
