"""The embedded chorales: content, disjoint splits, and the script that makes them."""

import importlib.util
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from rru import data
from rru.data import bach

ROOT = Path(__file__).parent.parent.parent
FILE = resources.files("rru.data").joinpath("bach.npz")
SPLITS = ("train", "valid", "test")


def piece(name: str) -> np.ndarray:
    """The voices (T, 4) of a chorale."""
    all_names = [name for names in bach.names().values() for name in names]
    return bach.voices()[all_names.index(name)]


def intervals(voices: np.ndarray) -> list[int]:
    """The melodic intervals of the soprano, without repeated notes."""
    steps = np.diff(voices[voices[:, 0] > 0, 0].astype(int))
    return steps[steps != 0].tolist()


def test_load_needs_no_network_and_no_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_DATA_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setattr("socket.socket", None)
    music = data.load("bach")
    assert isinstance(music, data.Music)
    assert [len(getattr(music, split)) for split in SPLITS] == [275, 44, 46]
    assert [sum(map(len, getattr(music, split))) for split in SPLITS] == [15_087, 2_245, 2_351]
    assert not (tmp_path / "nowhere").exists()


def test_rolls_are_binary_with_up_to_four_notes_in_vocal_range():
    music = bach.load()
    every = np.concatenate([*music.train, *music.valid, *music.test])  # (19683, 88)
    assert every.dtype == np.uint8
    assert every.shape == (19_683, 88)
    assert set(np.unique(every)) == {0, 1}
    sounding = every.sum(axis=1)
    assert sounding.min() >= 1
    assert sounding.max() == 4
    assert 3.8 < sounding.mean() < 4  # two voices may sing the same note
    keys = np.flatnonzero(every.any(axis=0)) + 21
    assert (keys.min(), keys.max()) == (36, 81)  # from a bass's low C to a soprano's high A


def test_pieces_have_24_to_192_steps():
    lengths = [len(voices) for voices in bach.voices()]
    assert (min(lengths), max(lengths)) == (24, 192)
    assert 40 < np.median(lengths) < 60


def test_voices_are_ordered_from_soprano_to_bass():
    voices = np.concatenate(bach.voices()).astype(int)
    means = [column[column > 0].mean() for column in voices.T]
    assert means == sorted(means, reverse=True)
    assert np.count_nonzero(voices == 0) < 0.001 * voices.size


def test_notes_of_two_known_chorales():
    christe = piece("bwv66.6")  # "Christ ist erstanden" in F sharp minor, 9 bars of four quarters
    assert len(christe) == 36
    assert christe[0].tolist() == [73, 64, 57, 57]  # upbeat: C#5 E4 A3 A3
    assert christe[1].tolist() == [69, 66, 61, 54]  # A4 F#4 C#4 F#3: the tonic
    assert christe[-1].tolist() == [66, 61, 58, 54]  # F#4 C#4 A#3 F#3: major at the end
    passion = piece("bwv244.54")  # "O Haupt voll Blut und Wunden" on an upbeat A: d c b-flat a, g held, a
    assert passion[:8, 0].tolist() == [69, 74, 72, 70, 69, 67, 67, 69]


def test_no_piece_is_in_two_splits():
    names = bach.names()
    together = [name for split in SPLITS for name in names[split]]
    assert len(together) == len(set(together)) == 365
    assert all(name.startswith("bwv") for name in together)


def test_no_two_splits_share_a_tune():
    every = iter(bach.voices())
    phrases = {
        split: {tuple(tune[i : i + 11]) for _ in names for tune in [intervals(next(every))] for i in range(len(tune))}
        for split, names in bach.names().items()
    }
    whole = {split: {phrase for phrase in tunes if len(phrase) == 11} for split, tunes in phrases.items()}
    assert all(len(tunes) > 500 for tunes in whole.values())
    assert not whole["train"] & whole["valid"]
    assert not whole["train"] & whole["test"]
    assert not whole["valid"] & whole["test"]


def test_no_two_splits_share_eight_quarters_of_all_four_voices():
    every = iter(bach.voices())
    runs = {
        split: {
            (piece[start : start + 8] - piece[start, 3]).tobytes()
            for piece in (next(every).astype(int) for _ in names)
            for start in range(len(piece) - 7)
        }
        for split, names in bach.names().items()
    }
    assert all(len(quarters) > 1000 for quarters in runs.values())
    assert not runs["train"] & runs["valid"]
    assert not runs["train"] & runs["test"]
    assert not runs["valid"] & runs["test"]


def test_settings_of_one_hymn_and_copies_of_one_piece_stay_together():
    split_of = {name: split for split, names in bach.names().items() for name in names}
    for family in (
        ["bwv135.6", "bwv153.5", "bwv244.15", "bwv244.17", "bwv244.44", "bwv244.54", "bwv244.62", "bwv270", "bwv271"],
        ["bwv281", "bwv282"],  # "Christus, der ist mein Leben", twice
        ["bwv16.6", "bwv419"],  # "Helft mir Gotts Güte preisen" is sung to "Von Gott will ich nicht lassen"
        ["bwv3.6", "bwv153.9"],  # "Ach Gott, wie manches Herzeleid"
        ["bwv69.6-a", "bwv99.6", "bwv144.3"],  # "Was Gott tut, das ist wohlgetan"
        ["bwv18.5-lz", "bwv18.5-w"],
        ["bwv197.7-a", "bwv398"],
        ["bwv274", "bwv62.6"],
    ):
        assert len({split_of[name] for name in family}) == 1, family


def test_file_is_small_and_contains_plain_arrays():
    with resources.as_file(FILE) as path:
        assert path.stat().st_size < 100_000
        with np.load(path, allow_pickle=False) as arrays:
            types = {name: array.dtype.kind for name, array in arrays.items()}
    assert types == {"voices": "u", "lengths": "u", "names": "S", "pieces": "u"}


@pytest.fixture
def script():
    """tools/make_bach.py as a module."""
    spec = importlib.util.spec_from_file_location("make_bach", ROOT / "tools" / "make_bach.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_script_writes_the_same_file_from_the_same_pieces(script, tmp_path):
    every = [name for names in bach.names().values() for name in names]
    pieces = dict(zip(every, bach.voices(), strict=True))
    script.write({name: pieces[name] for name in sorted(pieces, key=script.natural)}, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == FILE.read_bytes()


def note(pitch: str, duration: int, extra: str = "") -> str:
    alter = pitch.count("#") - pitch.count("b")
    written = f"<step>{pitch[0]}</step><alter>{alter}</alter><octave>{pitch[-1]}</octave>"
    return f"<note>{extra}<pitch>{written}</pitch><duration>{duration}</duration></note>"


def test_script_reads_the_notes_on_each_quarter(script, tmp_path):
    grace = "<note><grace/><pitch><step>G</step><octave>5</octave></pitch></note>"
    rest = "<note><rest/><duration>4</duration></note>"
    soprano = [  # an upbeat, then two bars; two divisions to a quarter, later four
        "<attributes><divisions>2</divisions></attributes>" + note("C5", 1) + note("D5", 1),
        grace + note("E5", 3) + note("F5", 1) + "<attributes><divisions>4</divisions></attributes>" + rest,
        note("Bb4", 4) + note("Bb4", 4, "<tie type='stop'/>") + rest,
    ]
    held = ["<attributes><divisions>1</divisions></attributes>" + note("C#3", 1), note("C#3", 3), note("C#3", 2)]
    parts = "".join(
        f"<part id='P{i}'>{''.join(f'<measure>{bar}</measure>' for bar in bars)}</part>"
        for i, bars in enumerate([soprano, held, held, held])
    )
    names = "".join(f"<score-part><part-name>{name}</part-name></score-part>" for name in script.VOICES)
    (tmp_path / "piece.xml").write_text(f"<score-partwise><part-list>{names}</part-list>{parts}</score-partwise>")
    voices = script.read_chorale(tmp_path / "piece.xml")
    assert voices[:, 0].tolist() == [72, 76, 76, 0, 70, 70]
    assert (voices[:, 1:] == 49).all()
    (tmp_path / "duet.xml").write_text("<score-partwise><part-list/></score-partwise>")
    assert script.read_chorale(tmp_path / "duet.xml") is None


@pytest.mark.skipif(importlib.util.find_spec("music21") is None, reason="music21 is not installed")
def test_script_reproduces_the_file_from_music21(tmp_path):
    subprocess.run([sys.executable, ROOT / "tools" / "make_bach.py", tmp_path / "again.npz"], check=True)
    assert (tmp_path / "again.npz").read_bytes() == FILE.read_bytes()
