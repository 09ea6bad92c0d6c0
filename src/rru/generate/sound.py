"""A piece as sound: a few harmonics for each note, that fade as those of a struck or plucked string do."""

import io
import wave

import numpy as np
from numpy.typing import NDArray

from rru.generate.midi import LOWEST, TEMPO
from rru.generate.music import Piece, notes

RATE = 22_050  # samples in a second
HARMONICS = (1.0, 0.45, 0.25, 0.12, 0.07, 0.04)
ATTACK, RELEASE, TAIL = 0.012, 0.12, 0.6  # seconds
CONCERT_A = 69  # its MIDI note; 440 Hz


def sound(piece: Piece) -> bytes:
    """A piece as a WAV file: one channel, 16 bits."""
    samples = synthesise(piece)
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples * 32_767).astype("<i2").tobytes())
    return content.getvalue()


def synthesise(piece: Piece) -> NDArray[np.float64]:
    """The samples of a piece, from -1 to 1."""
    step = 60 / TEMPO / piece.steps_per_beat  # seconds
    samples = np.zeros(int((len(piece.roll) * step + TAIL) * RATE) + 1)
    for key, start, length in notes(piece.roll):
        note = _note(440 * 2 ** ((LOWEST + key - CONCERT_A) / 12), length * step)
        first = int(start * step * RATE)
        samples[first : first + len(note)] += note[: len(samples) - first]
    loudest = np.abs(samples).max()
    return samples * (0.9 / loudest) if loudest > 0 else samples


def _note(frequency: float, seconds: float) -> NDArray[np.float64]:
    """A note of a frequency, held for so long and then let go."""
    time = np.arange(int((seconds + RELEASE) * RATE)) / RATE
    samples = np.zeros_like(time)
    for number, strength in enumerate(HARMONICS, 1):
        if frequency * number < RATE / 2:
            fading = np.exp(-time * (0.8 + 0.5 * number))
            samples += strength * fading * np.sin(2 * np.pi * frequency * number * time)
    envelope = np.minimum(time / ATTACK, 1) * np.clip((seconds + RELEASE - time) / RELEASE, 0, 1)
    return np.asarray(samples * envelope)
