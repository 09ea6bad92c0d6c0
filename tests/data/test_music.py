"""The music sets load as piano rolls from either of their forms."""

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


def _same(loaded, rolls):
    for some, expected in zip((loaded.train, loaded.valid, loaded.test), rolls, strict=True):
        assert len(some) == len(expected)
        for piece, roll in zip(some, expected, strict=True):
            assert piece.dtype == np.uint8
            np.testing.assert_array_equal(piece, roll)


@pytest.mark.parametrize("place", ["", "music/"])
@pytest.mark.parametrize("name", NAMES)
def test_mat_and_pickle_give_the_same_pieces(name, place, tmp_path):
    rolls = samples.pieces()
    mat, pickle = NAMES[name]
    samples.write(tmp_path / "a", place + mat, samples.mat_bytes(rolls))
    samples.write(tmp_path / "b", place + pickle, samples.pickle_bytes(rolls))
    _same(data.load(name, tmp_path / "a", verify=False), rolls)
    _same(data.load(name, tmp_path / "b", verify=False), rolls)


@pytest.mark.parametrize("dtype", [np.uint8, np.float64, np.int32])
@pytest.mark.parametrize("compressed", [True, False])
def test_any_numeric_type_of_matlab_is_read(dtype, compressed, tmp_path):
    rolls = samples.pieces()
    samples.write(tmp_path, "MuseData.mat", samples.mat_bytes(rolls, dtype, compressed))
    _same(data.load("musedata", tmp_path, verify=False), rolls)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_pickles_of_every_protocol_are_read(protocol, tmp_path):
    rolls = samples.pieces()
    samples.write(tmp_path, "MuseData.pickle", samples.pickle_bytes(rolls, protocol))
    _same(data.load("musedata", tmp_path, verify=False), rolls)


def test_a_file_with_other_counts_is_not_taken_for_the_set(tmp_path):
    path = samples.write(tmp_path, "JSB_Chorales.mat", samples.mat_bytes(samples.pieces()))
    with pytest.raises(data.DataError, match=r"holds \[3, 2, 1\] pieces, JSB Chorales has \[229, 76, 77\]") as error:
        data.load("jsb", tmp_path)
    assert str(path) in str(error.value)


def test_a_file_with_the_counts_of_the_set_is_taken(tmp_path):
    counts = data.entry("piano-midi").statistics["pieces"]
    samples.write(tmp_path, "Piano_midi.mat", samples.mat_bytes(samples.pieces(counts=counts)))
    loaded = data.load("piano-midi", tmp_path)
    assert [len(loaded.train), len(loaded.valid), len(loaded.test)] == counts == [87, 12, 25]


def test_empty_steps_are_kept_and_can_be_dropped():
    piece = np.zeros((4, 88), np.uint8)
    piece[[0, 3], 40] = 1
    np.testing.assert_array_equal(data.without_empty_steps(piece), piece[[0, 3]])


@pytest.mark.parametrize("note", [20, 109, 60.5, "60"])
def test_a_note_off_the_keyboard_is_named(note, tmp_path):
    import pickle

    content = pickle.dumps({"train": [[(60,)], [(60, note)]], "valid": [], "test": []}, 2)
    samples.write(tmp_path, "Nottingham.pickle", content)
    with pytest.raises(data.DataError, match=r"Nottingham.pickle, train, piece 1: a note must be .* 21 to 108"):
        data.load("nottingham", tmp_path, verify=False)
