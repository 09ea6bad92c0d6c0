"""Music data sets load as piano rolls from .mat files and pickles."""

import numpy as np
import pytest

from rru import data
from tests.data import samples

NAMES = {
    "jsb": ("JSB_Chorales.mat", "JSB Chorales.pickle"),
    "nottingham": ("Nottingham.mat", "Nottingham.pickle"),
    "musedata": ("MuseData.mat", "MuseData.pickle"),
    "piano-midi": ("Piano_midi.mat", "Piano-midi.de.pickle"),
}


def _assert_same(loaded, rolls):
    for some, expected in zip((loaded.train, loaded.valid, loaded.test), rolls, strict=True):
        assert len(some) == len(expected)
        for piece, roll in zip(some, expected, strict=True):
            assert piece.dtype == np.uint8
            np.testing.assert_array_equal(piece, roll)


@pytest.mark.parametrize("name", NAMES)
def test_mat_and_pickle_give_the_same_pieces(name, tmp_path):
    rolls = samples.pieces()
    mat, pickle = NAMES[name]
    samples.write(tmp_path / "a", mat, samples.mat_bytes(rolls))
    samples.write(tmp_path / "b", "music/" + pickle, samples.pickle_bytes(rolls))
    _assert_same(data.load(name, tmp_path / "a", verify=False), rolls)
    _assert_same(data.load(name, tmp_path / "b", verify=False), rolls)


@pytest.mark.parametrize(("dtype", "compressed"), [(np.uint8, False), (np.float64, True), (np.int32, False)])
def test_any_numeric_type_of_matlab_is_read(dtype, compressed, tmp_path):
    rolls = samples.pieces()
    samples.write(tmp_path, "MuseData.mat", samples.mat_bytes(rolls, dtype, compressed))
    _assert_same(data.load("musedata", tmp_path, verify=False), rolls)


def test_pickles_of_every_protocol_are_read(tmp_path):
    rolls = samples.pieces()
    for protocol in range(6):
        samples.write(tmp_path, "MuseData.pickle", samples.pickle_bytes(rolls, protocol))
        _assert_same(data.load("musedata", tmp_path, verify=False), rolls)


def test_file_with_other_counts_is_rejected(tmp_path):
    path = samples.write(tmp_path, "JSB_Chorales.mat", samples.mat_bytes(samples.pieces()))
    with pytest.raises(data.DataError, match=r"JSB Chorales has \[229, 76, 77\] pieces .*, got \[3, 2, 1\]") as error:
        data.load("jsb", tmp_path)
    assert str(path) in str(error.value)


def test_file_with_the_right_counts_is_accepted(tmp_path):
    counts = data.data_set("piano-midi").statistics["pieces"]
    samples.write(tmp_path, "Piano_midi.mat", samples.mat_bytes(samples.pieces(counts=counts)))
    loaded = data.load("piano-midi", tmp_path)
    assert [len(loaded.train), len(loaded.valid), len(loaded.test)] == counts == [87, 12, 25]


def test_without_empty_steps():
    piece = np.zeros((4, 88), np.uint8)
    piece[[0, 3], 40] = 1
    np.testing.assert_array_equal(data.without_empty_steps(piece), piece[[0, 3]])


@pytest.mark.parametrize("note", [20, 109, 60.5, "60"])
def test_note_outside_the_keyboard_is_rejected(note, tmp_path):
    import pickle

    content = pickle.dumps({"train": [[(60,)], [(60, note)]], "valid": [], "test": []}, 2)
    samples.write(tmp_path, "Nottingham.pickle", content)
    with pytest.raises(data.DataError, match=r"Nottingham.pickle, train, piece 1: notes must be .* 21 to 108, got"):
        data.load("nottingham", tmp_path, verify=False)
