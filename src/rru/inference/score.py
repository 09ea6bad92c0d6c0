"""Choose a prompt for a piece, and write the piece as MIDI, picture and sound."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from rru import data
from rru.data import DataError, without_empty_steps
from rru.data.midi import grid, read_midi
from rru.data.spelling import flag
from rru.inference.midi import midi
from rru.inference.music import Piece, Roll, Sampling, beats_per_bar, compose, keeps_rests, steps_per_beat
from rru.inference.output import check_free, unused_paths, write_files
from rru.inference.picture import picture
from rru.inference.sound import sound

if TYPE_CHECKING:
    from rru.inference.trained import Trained

PROMPT_BARS = 2
SUFFIXES = (".mid", ".png", ".wav")  # of the files of a piece


def bar(trained: Trained) -> int:
    """Return the steps per bar in the data of a model."""
    return max(round(beats_per_bar(trained) * steps_per_beat(trained)), 1)


@dataclass(frozen=True)
class Prompt:
    """The beginning of a piece.

    **Arguments:**

    - `roll`: (T, 88), the steps that the model is given; none is silent, as in training.
    - `written`: (T * `repeats` or more, 88), the same music with its rests and shorter notes.
    - `repeats`: steps of `written` for each step of the model.
    """

    roll: Roll
    written: Roll
    repeats: int = 1


def prompt(
    trained: Trained,
    file: Path | None,
    from_test: int | None,
    seed: int,
    data_dir: data.Place = None,
    *,
    octave: int = 0,
) -> Prompt:
    """Return a prompt: a MIDI file, two bars of a test piece, or else the first chord of a random test piece.

    **Arguments:**

    - `trained`: the model.
    - `file`: a MIDI file, used in full.
    - `from_test`: the index of a test piece; its first two bars are used.
    - `seed`: random seed for the test piece if neither is given.
    - `data_dir`: the data folder. If it lacks the data set of the model, the embedded chorales provide the chord.
    - `octave`: by how many octaves the piece will be moved; a file is moved the other way, so that it stays in place.
    """
    trained.check_command("compose")
    if file is not None and from_test is not None:
        raise ValueError(f"give a prompt file or a test piece, not both; got {file} and {from_test}")
    if file is not None:
        return _from_file(file, steps_per_beat(trained), octave, rests=keeps_rests(trained))
    if from_test is not None:
        pieces = _test_pieces(trained, data_dir)
        if from_test >= len(pieces):
            raise ValueError(f"test piece of {trained.task} must be from 0 to {len(pieces) - 1}, got {from_test}")
        piece = pieces[from_test] if keeps_rests(trained) else without_empty_steps(pieces[from_test])
        roll = piece[: PROMPT_BARS * bar(trained)]
        return Prompt(roll, roll)
    try:
        pieces = _test_pieces(trained, data_dir)
    except DataError:
        pieces = data.load("bach").test
    opening = without_empty_steps(pieces[int(np.random.default_rng(seed).integers(len(pieces)))])[:1]
    return Prompt(opening, opening)


def _from_file(file: Path, steps_per_beat: int, octave: int, *, rests: bool) -> Prompt:
    """Read a MIDI file on a grid that is fine enough for its notes.

    The model is given one chord for each of its steps: the first with the most keys in that step. Steps that are
    silent throughout are only written, unless the model is trained with `rests`.
    """
    repeats = grid(file, steps_per_beat)
    written = read_midi(file, repeats * steps_per_beat, gaps=True)
    written = np.pad(written, ((0, -len(written) % repeats), (0, 0)))  # whole steps of the model
    written = Piece(written, 0, steps_per_beat).moved(-octave).roll
    steps = written.reshape(-1, repeats, written.shape[1])  # (T, repeats, 88)
    fullest = steps.sum(2).argmax(1)  # the first of them
    given = steps[np.arange(len(steps)), fullest]
    return Prompt(given if rests else without_empty_steps(given), written, repeats)


def continued(trained: Trained, given: Prompt, bars: int, *, octave: int = 0, **sampling: Unpack[Sampling]) -> Piece:
    """Compose a piece that begins with a prompt as it is written, rests and short notes included.

    **Arguments:**

    - `given`: the prompt, from `prompt`.
    - `bars`: the number of bars to compose.
    - `octave`: by how many octaves to move the piece.
    - `sampling`: `temperature`, `voices` and `seed`, see `compose`.
    """
    piece = compose(trained, given.roll, bars * bar(trained), **sampling)
    composed = np.repeat(piece.composed, given.repeats, axis=0)
    roll = np.concatenate([given.written, composed])
    beat = piece.steps_per_beat * given.repeats
    return Piece(roll, len(given.written), beat, given.repeats, piece.beats_per_bar).moved(octave)


def _test_pieces(trained: Trained, data_dir: data.Place) -> list[Roll]:
    users_data = trained.config.data
    music = users_data.load() if users_data else data.load(trained.task, data_dir)
    assert isinstance(music, data.Music)
    return music.test


def places(path: Path, count: int, *, force: bool) -> list[Path]:
    """Return the MIDI paths for `count` pieces: `path`, or numbered files in the same folder.

    **Arguments:** `force`: whether existing files may be replaced; otherwise they raise an error.
    """
    if path.suffix.lower() not in (".mid", ".midi"):
        raise ValueError(f"output must be a .mid file, got {path}")
    paths = [path.with_stem(f"{path.stem}-{number}") for number in range(1, count + 1)] if count > 1 else [path]
    if not force:
        check_free(
            [file for each in paths for file in _files(each)],
            f"choose another name, or overwrite it with {flag('force')}",
        )
    return paths


def unused_places(trained: Trained, count: int, *, force: bool) -> list[Path]:
    """Return MIDI paths for `count` pieces in the current folder, named after the task; see `unused_paths`."""
    return unused_paths(f"piece-{trained.task}", SUFFIXES, count, force=force)


def write(piece: Piece, path: Path) -> list[Path]:
    """Write a piece to `path` as MIDI, and a .png and a .wav next to it. Return the three files."""
    files = _files(path)
    write_files(dict(zip(files, (midi(piece), picture(piece), sound(piece)), strict=True)))
    return files


def _files(path: Path) -> list[Path]:
    return [path, *(path.with_suffix(suffix) for suffix in SUFFIXES[1:])]
