"""What a trained model is for: music, text, answers, streams of many sessions, and models for other runtimes."""

from rru.generate.classifying import classify
from rru.generate.export import export
from rru.generate.midi import read_midi, write_midi
from rru.generate.music import Piece, compose
from rru.generate.streaming import Stream, stream
from rru.generate.trained import Trained, load
from rru.generate.writing import unknown_tokens, write

__all__ = [
    "Piece",
    "Stream",
    "Trained",
    "classify",
    "compose",
    "export",
    "load",
    "read_midi",
    "stream",
    "unknown_tokens",
    "write",
    "write_midi",
]
