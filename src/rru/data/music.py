"""The music sets: piano rolls from .mat files, or from the original pickles of note numbers."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.folder import Found
from rru.data.mat import read_mat
from rru.data.pickles import read_pickle
from rru.data.sets import Music

KEYS = 88
LOWEST = 21  # the MIDI note of the first key
SPLITS = ("train", "valid", "test")
STEP_LIMIT = 2_000_000  # in all pieces of a file; the largest set has a fraction of that
NOTE_LIMIT = 20_000_000


def prepare(found: Found, options: dict[str, Any]) -> Prepared:
    """All pieces of a split one behind the other, and where each begins."""
    (part,) = found.parts
    read = _from_mat if part.form == "mat" else _from_pickle
    arrays: dict[str, NDArray[Any]] = {}
    for split, pieces in read(part.path).items():
        lengths = [len(piece) for piece in pieces]
        arrays[f"{split}_rolls"] = np.concatenate([np.zeros((0, KEYS), np.uint8), *pieces])
        arrays[f"{split}_offsets"] = np.cumsum([0, *lengths], dtype=np.int64)
    counts = [len(arrays[f"{split}_offsets"]) - 1 for split in SPLITS]
    expected = found.entry.statistics.get("pieces")
    if options["verify"] and expected is not None and counts != expected:
        raise DataError(
            part.path, f"holds {counts} pieces, {found.entry.title} has {expected}; verify=False reads it all the same"
        )
    return Prepared(arrays, {})


def from_prepared(ready: Prepared) -> Music:
    """The set, from its prepared form."""
    splits = {}
    for split in SPLITS:
        rolls = ready.arrays[f"{split}_rolls"].view(np.ndarray)  # still mapped; cutting a memmap is slow
        splits[split] = [rolls[start:end] for start, end in pairwise(ready.arrays[f"{split}_offsets"].tolist())]
    return Music(**splits)


def _from_mat(path: Path) -> dict[str, list[NDArray[np.uint8]]]:
    variables = read_mat(path)
    splits = {}
    for split in SPLITS:
        if f"{split}data" not in variables:
            raise DataError(path, f"must hold a variable {split}data, got {sorted(variables)}")
        pieces = variables[f"{split}data"]
        splits[split] = [_checked(piece, path, f"{split}data, piece {i}") for i, piece in enumerate(pieces)]
    return splits


def _checked(piece: NDArray[Any], path: Path, place: str) -> NDArray[np.uint8]:
    if piece.size == 0:
        return np.zeros((0, KEYS), np.uint8)
    if piece.shape[1] != KEYS:
        raise DataError(path, f"a piece must have {KEYS} keys, got shape {piece.shape}", place)
    roll = np.ascontiguousarray(piece == 1).view(np.uint8)
    if np.count_nonzero(roll) != np.count_nonzero(piece):
        raise DataError(path, "keys must be 0 or 1, got other values", place)
    return roll


def _from_pickle(path: Path) -> dict[str, list[NDArray[np.uint8]]]:
    data = read_pickle(path)
    if not isinstance(data, dict) or not set(SPLITS) <= set(data):
        raise DataError(path, "must be a dict of train, valid and test")
    _check_amount(data, path)
    return {
        split: [_roll(piece, path, f"{split}, piece {i}") for i, piece in enumerate(data[split])] for split in SPLITS
    }


def _check_amount(data: dict[str, Any], path: Path) -> None:
    """Counts steps and notes before any are made: a small file can name the same list a million times."""
    steps = notes = 0
    for split in SPLITS:
        for number, piece in enumerate(_sequence(data[split], path, split)):
            place = f"{split}, piece {number}"
            steps += len(_sequence(piece, path, place))
            for step in piece if steps <= STEP_LIMIT else ():
                notes += len(_sequence(step, path, place))
                if notes > NOTE_LIMIT:
                    break
            if steps > STEP_LIMIT or notes > NOTE_LIMIT:
                raise DataError(path, f"holds more than {STEP_LIMIT} steps or {NOTE_LIMIT} notes", place)


def _roll(piece: list[Any], path: Path, place: str) -> NDArray[np.uint8]:
    """A piece as a piano roll, from a list of the notes at each step."""
    roll = np.zeros((len(piece), KEYS), np.uint8)
    for at, step in enumerate(piece):
        for note in step:
            if type(note) not in (int, float) or not LOWEST <= note < LOWEST + KEYS or note != int(note):
                got = note if type(note) in (int, float) and abs(note) < 1e9 else type(note).__name__
                allowed = f"{LOWEST} to {LOWEST + KEYS - 1}"
                raise DataError(path, f"a note must be a number from {allowed}, got {got}", place)
            roll[at, int(note) - LOWEST] = 1
    return roll


def _sequence(value: Any, path: Path, place: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise DataError(path, f"must be a list or tuple, got {type(value).__name__}", place)
    return value
