"""Make `src/rru/data/bach.npz` from the four-part Bach chorales of the music21 corpus.

Usage: `pip install music21==10.5.1`, then `python tools/make_bach.py`. The notes are read from MusicXML with the
standard library; music21 itself is not imported. The result is reproducible byte for byte.
"""

import argparse
import difflib
import hashlib
import importlib.metadata
import importlib.util
import re
import zipfile
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

VERSION = "10.5.1"  # of music21; other versions may have other pieces
VOICES = ["Soprano", "Alto", "Tenor", "Bass"]
SHARES = {"train": 0.76, "valid": 0.12, "test": 0.12}  # fractions of the pieces
PHRASE = 11  # melodic intervals in a row; pieces that share them are settings of the same hymn tune
CHORDS = 8  # quarters in a row; pieces that share all four notes on them are copies of one setting
SIMILARITY = 0.75  # difflib ratio of two tunes that count as the same
SEMITONES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
TARGET = Path(__file__).parent.parent / "src" / "rru" / "data" / "bach.npz"

Interval = tuple[Fraction, Fraction, int]  # start and end of a note in quarters, and its MIDI note


def corpus() -> Path:
    """Return the folder of Bach's works in the installed music21."""
    spec = importlib.util.find_spec("music21")
    if spec is None or spec.origin is None:
        raise SystemExit(f"music21 is not installed; run: pip install music21=={VERSION}")
    if (version := importlib.metadata.version("music21")) != VERSION:
        raise SystemExit(f"music21 must be version {VERSION}, got {version}")
    return Path(spec.origin).parent / "corpus" / "bach"


def read_score(path: Path) -> ElementTree.Element:
    """Return the root element of a MusicXML file, compressed or not."""
    if path.suffix == ".xml":
        return ElementTree.parse(path).getroot()
    with zipfile.ZipFile(path) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith((".xml", ".musicxml")) and not n.startswith("META-INF"))
        return ElementTree.fromstring(archive.read(name))


def read_part(part: ElementTree.Element) -> list[Interval]:
    """Return the notes of a part. Tied notes are separate notes, each starting where the previous one ends."""
    notes: list[Interval] = []
    now = Fraction(0)
    divisions = 1
    for measure in part.iter("measure"):
        end = now
        for element in measure:
            if element.tag == "attributes":
                divisions = int(element.findtext("divisions", default=str(divisions)))
            elif element.tag in ("note", "forward", "backup") and element.find("grace") is None:
                length = Fraction(element.findtext("duration", default="0")) / divisions
                if (pitch := element.find("pitch")) is not None:
                    notes.append((now, now + length, midi_number(pitch)))
                now += -length if element.tag == "backup" else length
                end = max(end, now)
        now = end
    return notes


def midi_number(pitch: ElementTree.Element) -> int:
    """Return the MIDI note of a written pitch; middle C is 60."""
    step, alter, octave = (pitch.findtext(tag, default="0") for tag in ("step", "alter", "octave"))
    return 12 * (int(octave) + 1) + SEMITONES[step] + int(alter)


def read_chorale(path: Path) -> np.ndarray | None:
    """Return the MIDI note of each voice on each quarter, (T, 4), 0 for a rest; None if the parts are not SATB."""
    score = read_score(path)
    if [name.text for name in score.iterfind("part-list/score-part/part-name")] != VOICES:
        return None
    parts = [read_part(part) for part in score.iterfind("part")]
    steps = int(max(end for notes in parts for _, end, _ in notes) // 1)
    voices = np.zeros((steps + 1, len(VOICES)), dtype=np.uint8)
    for column, notes in enumerate(parts):
        for start, end, number in notes:
            voices[-(-start // 1) : -(-end // 1), column] = number  # beats t with start <= t < end
    return voices[voices.any(axis=1)]  # drop beats without a note, as in JSB Chorales


def natural(name: str) -> list[int | str]:
    """Return a sort key that puts bwv9.7 before bwv10.7."""
    return [int(piece) if piece.isdigit() else piece for piece in re.split(r"(\d+)", name)]


def tune(voices: np.ndarray) -> list[int]:
    """Return the soprano in semitones relative to its last note, without repeated notes."""
    soprano = voices[voices[:, 0] > 0, 0].astype(int)
    changes = np.flatnonzero(np.diff(soprano, prepend=0))
    return [int(note) for note in soprano[changes] - soprano[-1]]


def fingerprints(voices: np.ndarray) -> set[tuple[int, ...]]:
    """Return key-independent features of a piece: runs of melodic intervals, and runs of chords relative to a bass."""
    steps = tuple(after - before for before, after in pairwise(tune(voices)))
    melodies = {steps[start : start + PHRASE] for start in range(max(1, len(steps) - PHRASE + 1))}
    windows = (voices[start : start + CHORDS].astype(int) for start in range(len(voices) - CHORDS + 1))
    return melodies | {tuple((window - window[0, -1]).ravel().tolist()) for window in windows}


def alike(matcher: difflib.SequenceMatcher[int]) -> bool:
    """Return whether two tunes are similar. Check cheap upper bounds first."""
    measures = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
    return all(measure() >= SIMILARITY for measure in measures)


def families(chorales: dict[str, np.ndarray]) -> list[list[str]]:
    """Group related pieces, which share a fingerprint or a similar tune: settings of one hymn, or copies."""
    tunes = {name: tune(voices) for name, voices in chorales.items()}
    known = {name: fingerprints(voices) for name, voices in chorales.items()}
    groups: list[list[str]] = []
    for name, melody in tunes.items():
        matcher = difflib.SequenceMatcher(None, b=melody, autojunk=False)

        def related(other: str, name: str = name, matcher: difflib.SequenceMatcher[int] = matcher) -> bool:
            matcher.set_seq1(tunes[other])
            return not known[name].isdisjoint(known[other]) or alike(matcher)

        joined = [group for group in groups if any(related(other) for other in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([other for group in joined for other in group] + [name])
    return [sorted(group, key=natural) for group in groups]


def split(chorales: dict[str, np.ndarray]) -> dict[str, list[str]]:
    """Return the names by split. In the order of a hash, each family goes to the split furthest below its share."""
    parts: dict[str, list[str]] = {name: [] for name in SHARES}
    for family in sorted(families(chorales), key=lambda names: hashlib.sha256(names[0].encode()).digest()):
        missing = {name: share * len(chorales) - len(parts[name]) for name, share in SHARES.items()}
        parts[max(missing, key=lambda name: missing[name])] += family
    return {name: sorted(names, key=natural) for name, names in parts.items()}


def write(chorales: dict[str, np.ndarray], target: Path) -> None:
    """Write the pieces as plain arrays, uncompressed, so that the bytes do not depend on the version of zlib."""
    parts = split(chorales)
    names = [name for part in parts.values() for name in part]
    with target.open("wb") as file:
        np.savez(
            file,
            voices=np.concatenate([chorales[name] for name in names]),  # (all steps, 4) MIDI notes, 0 for a rest
            lengths=np.array([len(chorales[name]) for name in names], dtype="<u2"),  # (pieces,)
            names=np.array([name.encode() for name in names]),  # (pieces,)
            pieces=np.array([len(part) for part in parts.values()], dtype="<u2"),  # in train, valid, test
        )


def main() -> None:
    """Read the corpus and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", type=Path, default=TARGET, help="default: %(default)s")
    target: Path = parser.parse_args().target
    paths = (path for path in corpus().iterdir() if path.suffix in (".mxl", ".xml"))
    read = {path.stem: read_chorale(path) for path in sorted(paths, key=lambda path: natural(path.stem))}
    chorales = {name: voices for name, voices in read.items() if voices is not None}
    write(chorales, target)
    counts = ", ".join(
        f"{part} {len(names)} pieces {sum(len(chorales[name]) for name in names)} steps"
        for part, names in split(chorales).items()
    )
    print(
        f"{target}: {len(chorales)} pieces, {len(families(chorales))} families; {counts}; {target.stat().st_size} bytes"
    )


if __name__ == "__main__":
    main()
