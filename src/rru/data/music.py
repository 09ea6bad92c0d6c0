"""Music data sets: piano rolls from .mat files, or from the original pickles of MIDI notes."""

from collections.abc import Mapping, Sequence
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
from rru.data.sets import KEYS, LOWEST_NOTE, SPLITS, Music

STEP_LIMIT = 2_000_000  # per file; the largest data set has a fraction of that
NOTE_LIMIT = 20_000_000


def prepare(files: Found, options: Mapping[str, bool]) -> Prepared:
    """Read the pieces, concatenated per split, with their offsets."""
    (part,) = files.parts
    read = _from_mat if part.form == "mat" else _from_pickle
    arrays: dict[str, NDArray[np.generic]] = {}
    for split, pieces in read(part.path).items():
        lengths = [len(piece) for piece in pieces]
        arrays[f"{split}_rolls"] = np.concatenate([np.zeros((0, KEYS), np.uint8), *pieces])
        arrays[f"{split}_offsets"] = np.cumsum([0, *lengths], dtype=np.int64)
    counts = [len(arrays[f"{split}_offsets"]) - 1 for split in SPLITS]
    expected = files.data_set.statistics.get("pieces")
    if options["verify"] and expected is not None and counts != expected:
        reason = f"{files.data_set.title} has {expected} pieces in train, valid and test, got {counts}"
        raise DataError(part.path, f"{reason}; verify=False skips this check")
    return Prepared(arrays, {})


def from_prepared(ready: Prepared) -> Music:
    """Build the data set from cached arrays."""
    splits = {}
    for split in SPLITS:
        rolls = ready.arrays[f"{split}_rolls"].view(np.ndarray)  # still mapped; slicing a memmap is slow
        splits[split] = [rolls[start:end] for start, end in pairwise(ready.arrays[f"{split}_offsets"].tolist())]
    return Music(**splits)


def _from_mat(path: Path) -> dict[str, list[NDArray[np.uint8]]]:
    variables = read_mat(path)
    splits = {}
    for split in SPLITS:
        if f"{split}data" not in variables:
            raise DataError(path, f"must have a variable {split}data, got {sorted(variables)}")
        pieces = variables[f"{split}data"]
        splits[split] = [_roll_from_matrix(piece, path, f"{split}data, piece {i}") for i, piece in enumerate(pieces)]
    return splits


def _roll_from_matrix(piece: NDArray[np.generic], path: Path, place: str) -> NDArray[np.uint8]:
    if piece.size == 0:
        return np.zeros((0, KEYS), np.uint8)
    if piece.shape[1] != KEYS:
        raise DataError(path, f"piece must have {KEYS} keys, got shape {piece.shape}", place)
    roll = np.ascontiguousarray(piece == 1).view(np.uint8)
    if np.count_nonzero(roll) != np.count_nonzero(piece):
        raise DataError(path, "keys must be 0 or 1", place)
    return roll


def _from_pickle(path: Path) -> dict[str, list[NDArray[np.uint8]]]:
    data = read_pickle(path)
    if not isinstance(data, dict) or not set(SPLITS) <= set(data):
        raise DataError(path, "must be a dict with train, valid and test")
    _check_size(data, path)
    return {
        split: [_roll_from_notes(piece, path, f"{split}, piece {i}") for i, piece in enumerate(data[split])]
        for split in SPLITS
    }


def _check_size(data: Mapping[str, object], path: Path) -> None:
    """Count steps and notes before allocating: a small file can refer to one list a million times."""
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
                raise DataError(path, f"has more than {STEP_LIMIT} steps or {NOTE_LIMIT} notes", place)


def _roll_from_notes(piece: Sequence[Any], path: Path, place: str) -> NDArray[np.uint8]:
    """Build a piano roll from the list of MIDI notes at each step."""
    roll = np.zeros((len(piece), KEYS), np.uint8)
    for index, step in enumerate(piece):
        for note in step:
            if type(note) not in (int, float) or not LOWEST_NOTE <= note < LOWEST_NOTE + KEYS or note != int(note):
                got = note if type(note) in (int, float) and abs(note) < 1e9 else type(note).__name__
                allowed = f"{LOWEST_NOTE} to {LOWEST_NOTE + KEYS - 1}"
                raise DataError(path, f"notes must be whole numbers from {allowed}, got {got}", place)
            roll[index, int(note) - LOWEST_NOTE] = 1
    return roll


def _sequence(value: object, path: Path, place: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise DataError(path, f"must be a list or tuple, got {type(value).__name__}", place)
    return value
