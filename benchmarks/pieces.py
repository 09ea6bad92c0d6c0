"""Compare pieces that models compose with the pieces of their data: `python -m benchmarks.pieces RUN [RUN ...]`.

Every model continues the first two bars of the same test pieces. A row of the table is a model at a temperature, the
first row the same test pieces as they are. The columns:

- `voices`: keys per step; `usual`: the share of steps that have the number of voices most steps of the data have.
- `held`: the share of keys that sound in the step before, too; `same`: the share of steps equal to the step before.
- `interval`: semitones between neighbouring keys of a step.
- `outside`: the share of keys outside the major or natural minor scale that fits a piece best.
- `chords`: different chords, as a share of all steps.
- `copied`: the share of passages of eight steps that are in the training pieces, in any key.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import table
from rru import inference
from rru.data import Music, load, without_empty_steps
from rru.inference.music import compose

Roll = NDArray[np.uint8]

COLUMNS = ("voices", "usual", "held", "same", "interval", "outside", "chords", "copied")
MAJOR = (0, 2, 4, 5, 7, 9, 11)  # the natural minor scale has the same keys, from another one on
OCTAVE = 12
PASSAGE = 8  # steps


def main() -> None:
    """Compose, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="runs of the same data set")
    parser.add_argument("--pieces", type=int, default=8, help="test pieces to continue; default: 8")
    parser.add_argument("--steps", type=int, default=64, help="steps to compose for each; default: 64")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.8, 1.0], help="default: 0.8 1.0")
    options = parser.parse_args()
    models = [inference.load(run) for run in options.runs]
    names = sorted({model.task for model in models})
    if len(names) > 1 or models[0].config.data is not None:
        parser.error(f"the runs must be of one data set of the catalogue, got {', '.join(names)}")
    if options.steps < PASSAGE:
        parser.error(f"--steps must be at least {PASSAGE}, got {options.steps}")
    music = load(names[0])
    assert isinstance(music, Music)
    test = [without_empty_steps(piece) for piece in music.test[: options.pieces]]
    train = [without_empty_steps(piece) for piece in music.train]
    bars = 2 * inference.music.BEATS_PER_BAR * inference.music.steps_per_beat(models[0])
    usual = int(np.bincount(np.concatenate(train).sum(1)).argmax())
    known = set(passages(train))
    rows = [["the test pieces", "", *cells(test, usual, known)]]
    for path, model in zip(options.runs, models, strict=True):
        for temperature in options.temperatures:
            pieces = [
                compose(model, piece[:bars], options.steps, temperature=temperature, seed=seed).composed
                for seed, piece in enumerate(test)
            ]
            rows.append([str(path), f"{temperature:g}", *cells(pieces, usual, known)])
    print(table(["pieces", "temperature", *COLUMNS], rows))


def cells(pieces: list[Roll], usual: int, known: set[bytes]) -> list[str]:
    """Return the columns of some pieces."""
    together = np.concatenate(pieces)
    after = [(piece[:-1].astype(bool), piece[1:].astype(bool)) for piece in pieces]
    held = sum(int((before & now).sum()) for before, now in after) / sum(int(now.sum()) for _, now in after)
    same = np.concatenate([(before == now).all(1) for before, now in after]).mean()
    gaps = np.concatenate([np.diff(np.flatnonzero(step)) for step in together])
    outside = sum(map(notes_outside, pieces)) / max(int(together.sum()), 1)
    found = [passage in known for passage in passages(pieces)]
    return [
        f"{together.sum(1).mean():.2f}",
        f"{(together.sum(1) == usual).mean():.0%}",
        f"{held:.0%}",
        f"{same:.0%}",
        f"{gaps.mean():.1f}",
        f"{outside:.1%}",
        f"{len({step.tobytes() for step in together}) / len(together):.0%}",
        f"{np.mean(found):.1%}",
    ]


def notes_outside(piece: Roll) -> int:
    """Return how many keys of a piece are outside the scale that has most of them."""
    counts = np.zeros(OCTAVE, np.int64)
    np.add.at(counts, np.arange(piece.shape[1]) % OCTAVE, piece.sum(0))
    inside = max(counts[[(tonic + step) % OCTAVE for step in MAJOR]].sum() for tonic in range(OCTAVE))
    return int(counts.sum() - inside)


def passages(pieces: Iterable[Roll]) -> list[bytes]:
    """Return every passage of the pieces, moved to where its lowest key is the first."""
    found = []
    for piece in pieces:
        for start in range(len(piece) - PASSAGE + 1):
            passage = piece[start : start + PASSAGE]
            used = np.flatnonzero(passage.any(0))
            found.append(passage[:, used[0] : used[-1] + 1].tobytes() if len(used) else b"")
    return found


if __name__ == "__main__":
    main()
