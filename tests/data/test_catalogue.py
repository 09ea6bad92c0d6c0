"""The catalogue says where every set comes from, and an unknown or missing set is answered with what to do."""

import re

import pytest

from rru import data

ALL = ["bach", "jsb", "nottingham", "musedata", "piano-midi", "ptb-words", "ptb-chars", "enwik8", "text8", "imdb"]
ALL += ["mnist", "pmnist"]


def test_every_set_of_the_paper_is_there():
    assert list(data.CATALOGUE) == ALL


@pytest.mark.parametrize("name", ALL)
def test_an_entry_is_complete(name):
    entry = data.entry(name)
    assert entry.name == name
    assert entry.title
    assert entry.description
    assert entry.licence
    assert entry.citation
    assert entry.statistics
    assert entry.embedded == (name == "bach")
    for file in entry.files:
        assert file.url.startswith(("https://", "http://mattmahoney.net/"))
        for given in filter(None, (file.hash, file.content)):
            assert re.fullmatch(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", given)
        assert not file.path.startswith("/")
        assert ".." not in file.path


def test_a_view_reads_the_files_of_another_set():
    assert data.entry("ptb-chars").files == data.entry("ptb-words").files
    assert data.entry("pmnist").files == data.entry("mnist").files


def test_a_misspelt_name_is_answered_with_the_right_one():
    with pytest.raises(ValueError, match="got 'PTB_words'; did you mean 'ptb-words'"):
        data.load("PTB_words")


def test_a_missing_set_says_what_to_get_from_where_and_where_to_put_it(tmp_path):
    with pytest.raises(data.MissingData) as error:
        data.load("text8", tmp_path)
    for word in ("http://mattmahoney.net/dc/text8.zip", str(tmp_path / "text8/text8.zip"), "rru data fetch text8"):
        assert word in str(error.value)


def test_the_bach_card_says_it_is_not_jsb():
    assert "not JSB Chorales" in data.entry("bach").description


def test_the_counts_of_bach_are_those_of_what_ships():
    bach = data.load("bach")
    splits = (bach.train, bach.valid, bach.test)
    assert [len(split) for split in splits] == data.entry("bach").statistics["pieces"]
    assert [sum(map(len, split)) for split in splits] == data.entry("bach").statistics["steps"]


@pytest.mark.parametrize("options", [{"line_ends": True}, {"speed": True}, {"verify": 1}])
def test_an_option_a_set_does_not_have_is_named(options, tmp_path):
    with pytest.raises(TypeError, match="options of enwik8 must be verify"):
        data.load("enwik8", tmp_path, **options)
