"""The embedded Bach chorales: real music with no download. Made by `tools/make_bach.py`; they are not JSB Chorales."""

from importlib import resources

import numpy as np
from numpy.typing import NDArray

from rru.data.sets import Music

KEYS = 88
LOWEST = 21  # the MIDI number of the first key
SPLITS = ("train", "valid", "test")


def load() -> Music:
    """The chorales as piano rolls, one step for each quarter note on which anything sounds."""
    rolls = [_roll(piece) for piece in voices()]
    return Music(**{split: rolls[here] for split, here in _ranges().items()})


def names() -> dict[str, list[str]]:
    """The pieces' names in the music21 corpus, by split, in the order of `load`: `bwv66.6`."""
    stored = [name.decode() for name in _arrays()["names"].tolist()]
    return {split: stored[here] for split, here in _ranges().items()}


def voices() -> list[NDArray[np.uint8]]:
    """The pieces as their four voices, (T, 4): MIDI numbers of soprano, alto, tenor, bass; 0 for a rest."""
    arrays = _arrays()
    return np.split(arrays["voices"], np.cumsum(arrays["lengths"], dtype=np.int64)[:-1])


def _roll(piece: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Voices (T, 4) as a piano roll (T, 88)."""
    roll = np.zeros((len(piece), KEYS), np.uint8)
    step, voice = np.nonzero(piece)
    roll[step, piece[step, voice] - LOWEST] = 1
    return roll


def _ranges() -> dict[str, slice]:
    """Which of the pieces belong to each split."""
    ends = np.cumsum(_arrays()["pieces"], dtype=np.int64).tolist()
    return {split: slice(start, end) for split, start, end in zip(SPLITS, [0, *ends[:-1]], ends, strict=True)}


def _arrays() -> dict[str, NDArray[np.generic]]:
    with resources.files("rru.data").joinpath("bach.npz").open("rb") as file, np.load(file, allow_pickle=False) as npz:
        return dict(npz)
