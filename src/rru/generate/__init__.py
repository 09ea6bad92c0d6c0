"""What a trained model is for: music, text, answers, streams of many sessions, and models for other runtimes."""

from rru.generate.classifying import classify
from rru.generate.midi import read_midi, write_midi
from rru.generate.music import Piece, compose
from rru.generate.stream import Stream, stream
from rru.generate.trained import Trained, load
from rru.generate.writing import write

__all__ = ["Piece", "Stream", "Trained", "classify", "compose", "load", "read_midi", "stream", "write", "write_midi"]
