"""The Bach chorales that ship with the package, made by `tools/make_bach.py`. They are not JSB Chorales."""

from importlib import resources

import numpy as np
from numpy.typing import NDArray

from rru.data.sets import KEYS, LOWEST_NOTE, SPLITS, Music


def load() -> Music:
    """Load the chorales as piano rolls, one step per quarter note; quarters where all voices rest are left out."""
    rolls = [_roll(piece) for piece in voices()]
    return Music(**{split: rolls[pieces] for split, pieces in _split_slices().items()})


def names() -> dict[str, list[str]]:
    """Return the names of the pieces in the music21 corpus (`bwv66.6`) by split, in the order of `load`."""
    stored = [name.decode() for name in _arrays()["names"].tolist()]
    return {split: stored[pieces] for split, pieces in _split_slices().items()}


def voices() -> list[NDArray[np.uint8]]:
    """Return the pieces as four voices, (T, 4): MIDI notes of soprano, alto, tenor and bass; 0 is a rest."""
    arrays = _arrays()
    return np.split(arrays["voices"], np.cumsum(arrays["lengths"], dtype=np.int64)[:-1])


def _roll(piece: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Turn voices (T, 4) into a piano roll (T, 88)."""
    roll = np.zeros((len(piece), KEYS), np.uint8)
    step, voice = np.nonzero(piece)
    roll[step, piece[step, voice] - LOWEST_NOTE] = 1
    return roll


def _split_slices() -> dict[str, slice]:
    """Return the range of pieces in each split."""
    ends = np.cumsum(_arrays()["pieces"], dtype=np.int64).tolist()
    return {split: slice(start, end) for split, start, end in zip(SPLITS, [0, *ends[:-1]], ends, strict=True)}


def _arrays() -> dict[str, NDArray[np.generic]]:
    with resources.files("rru.data").joinpath("bach.npz").open("rb") as file, np.load(file, allow_pickle=False) as npz:
        return dict(npz)
