"""Synthesise a piece: each note is a few harmonics that decay like a plucked string."""

import io
import wave

import numpy as np
from numpy.typing import NDArray

from rru.data import LOWEST_NOTE
from rru.inference.midi import TEMPO
from rru.inference.music import Piece, notes

RATE = 22_050  # samples per second
HARMONICS = (1.0, 0.45, 0.25, 0.12, 0.07, 0.04)
ATTACK, RELEASE, TAIL = 0.012, 0.12, 0.6  # seconds
CONCERT_A = 69  # MIDI note of 440 Hz


def sound(piece: Piece) -> bytes:
    """Return a piece as the bytes of a WAV file: mono, 16 bits."""
    samples = synthesise(piece)
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples * 32_767).astype("<i2").tobytes())
    return content.getvalue()


def synthesise(piece: Piece) -> NDArray[np.float64]:
    """Return the samples of a piece, from -1 to 1."""
    step = 60 / TEMPO / piece.steps_per_beat  # seconds
    samples = np.zeros(int((len(piece.roll) * step + TAIL) * RATE) + 1)
    for key, start, length in notes(piece.roll):
        note = _note(440 * 2 ** ((LOWEST_NOTE + key - CONCERT_A) / 12), length * step)
        first = int(start * step * RATE)
        samples[first : first + len(note)] += note[: len(samples) - first]
    loudest = np.abs(samples).max()
    return samples * (0.9 / loudest) if loudest > 0 else samples


def _note(frequency: float, seconds: float) -> NDArray[np.float64]:
    """Return the samples of a note that is held for `seconds` and then released."""
    time = np.arange(int((seconds + RELEASE) * RATE)) / RATE
    samples = np.zeros_like(time)
    for number, amplitude in enumerate(HARMONICS, 1):
        if frequency * number < RATE / 2:
            decay = np.exp(-time * (0.8 + 0.5 * number))
            samples += amplitude * decay * np.sin(2 * np.pi * frequency * number * time)
    envelope = np.minimum(time / ATTACK, 1) * np.clip((seconds + RELEASE - time) / RELEASE, 0, 1)
    return np.asarray(samples * envelope)
