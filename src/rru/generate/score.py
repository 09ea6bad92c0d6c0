"""Pieces and their files: what to go on from, and MIDI, picture and sound of what came of it."""

from pathlib import Path

import numpy as np

from rru import data
from rru.data import DataError, without_empty_steps
from rru.generate.midi import midi, read_midi
from rru.generate.music import BEATS_PER_BAR, Piece, Roll, steps_per_beat
from rru.generate.output import check_free, write_files
from rru.generate.picture import picture
from rru.generate.sound import sound
from rru.generate.trained import Trained

PROMPT_BARS = 2


def bar(trained: Trained) -> int:
    """Steps of a bar in the data a model was trained on."""
    return BEATS_PER_BAR * steps_per_beat(trained.task)


def prompt(trained: Trained, file: Path | None, from_test: int | None, seed: int, data_dir: data.Place = None) -> Roll:
    """What to go on from, (T, 88).

    **Arguments:**

    - `trained`: the model.
    - `file`: a MIDI file, taken whole.
    - `from_test`: a piece of the test set, of which the first two bars are taken.
    - `seed`: which of the set's opening chords is taken if neither is given.
    - `data_dir`: the data folder; where the model's own set is not there, the embedded chorales open a piece.
    """
    trained.check_kind("music", to="compose")
    if file is not None and from_test is not None:
        raise ValueError(f"a piece goes on from a file or from the test set, not from both; got {file} and {from_test}")
    if file is not None:
        return read_midi(file, steps_per_beat(trained.task))
    if from_test is not None:
        pieces = _test_pieces(trained.task, data_dir)
        if from_test >= len(pieces):
            raise ValueError(f"the test set of {trained.task} has pieces 0 to {len(pieces) - 1}, got {from_test}")
        return without_empty_steps(pieces[from_test])[: PROMPT_BARS * bar(trained)]
    try:
        pieces = _test_pieces(trained.task, data_dir)
    except DataError:
        pieces = _test_pieces("bach", None)
    opening = pieces[int(np.random.default_rng(seed).integers(len(pieces)))]
    return without_empty_steps(opening)[:1]


def _test_pieces(task: str, data_dir: data.Place) -> list[Roll]:
    music = data.load(task, data_dir)
    assert isinstance(music, data.Music)
    return music.test


def places(path: Path, count: int, *, force: bool) -> list[Path]:
    """Where so many pieces go, as MIDI files: `path`, or beside it with a number each.

    **Arguments:** `force`: whether files that are there already may be replaced.
    """
    if path.suffix.lower() not in (".mid", ".midi"):
        raise ValueError(f"the output must be a .mid file, got {path}")
    chosen = [path.with_stem(f"{path.stem}-{number}") for number in range(1, count + 1)] if count > 1 else [path]
    if not force:
        check_free(
            [file for place in chosen for file in _beside(place)], "choose another name, or replace it by --force"
        )
    return chosen


def write(piece: Piece, path: Path) -> list[Path]:
    """Writes a piece as MIDI to `path`, and beside it a picture and a sound file; the files."""
    files = _beside(path)
    write_files(dict(zip(files, (midi(piece), picture(piece), sound(piece)), strict=True)))
    return files


def _beside(path: Path) -> list[Path]:
    return [path, path.with_suffix(".png"), path.with_suffix(".wav")]
