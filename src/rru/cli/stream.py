"""`rru stream`: read a sequence from standard input, line by line."""

import sys
from pathlib import Path

from rru.cli.console import line, plain_errors
from rru.cli.inference import loaded
from rru.cli.places import with_run
from rru.data import DataError
from rru.inference import LineReader

MAX_LINE = 1 << 20  # characters of a line that are read at once


@with_run
def stream(folder: Path) -> None:
    """Read a sequence from standard input and print the prediction after each line.

        rru stream latest < novel.txt

    Text: prints the bits per character or word, and what is likely to follow. Labels: prints the likeliest classes; a
    line continues the text, or has the numbers of one step, separated by commas; an empty line starts a new sequence.
    Music: a line has the MIDI notes of one step. For series use `rru forecast`.
    """
    with plain_errors():
        reader, number = LineReader(loaded(folder)), 0
        while text := sys.stdin.readline(MAX_LINE):
            number += 1
            try:
                prediction = reader.read(text)
            except ValueError as error:
                raise DataError("standard input", str(error), f"line {number}") from error
            if prediction:
                line(prediction)
                sys.stdout.flush()
