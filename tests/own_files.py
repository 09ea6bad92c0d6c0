"""Small files like those of users."""

import csv
import random

import numpy as np

from rru import data
from rru.inference import Piece, write_midi

SENTENCES = (
    "The quick brown fox jumps over the lazy dog.\n",
    "It was the best of times, it was the worst of times.\n",
    "Call me Ishmael; some years ago, never mind how long.\n",
)


def text(path, lines=400, seed=0):
    """A text of `lines` lines in ever new orders."""
    draw = random.Random(seed)
    path.write_text("".join(f"{draw.randrange(100)} {draw.choice(SENTENCES)}" for _ in range(lines)), encoding="utf-8")
    return path


def pieces(folder, count=20, seed=0):
    """A folder of different pieces of 24 quarter notes."""
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for number in range(count):
        roll = np.zeros((24, data.KEYS), np.uint8)
        roll[np.arange(24), draw.integers(30, 60, 24)] = 1
        roll[np.arange(24), 20 + np.arange(24) // 4] = 1
        write_midi(Piece(roll, 0, 1), folder / f"{number:03}.mid")
    return folder


def reviews(path, count=60):
    """A table of texts with two classes that a word decides."""
    draw = random.Random(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["body", "stars"])
        for number in range(count):
            word = ("awful", "great")[number % 2]
            writer.writerow(
                [f"film {number} was {word}, {draw.choice(('really', 'truly'))} {word}", 1 + 4 * (number % 2)]
            )
    return path


def gestures(path, count=40, steps=12):
    """A table of sequences: waves up or down, two columns, with an id, a time and a label in each row."""
    draw = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "t", "x", "y", "kind"])
        for number in range(count):
            sign = 1 if number % 2 else -1
            for step in range(steps):
                x, y = sign * np.sin(step / 3) + draw.normal(0, 0.1), draw.normal()
                writer.writerow([f"g{number}", step, f"{x:.4f}", f"{y:.4f}", "up" if sign > 0 else "down"])
    return path
