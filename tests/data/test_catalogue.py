"""The catalogue is complete, and errors for unknown or missing data sets say what to do."""

import re

import pytest

from rru import data

ALL = ["bach", "jsb", "nottingham", "musedata", "piano-midi", "ptb-words", "ptb-chars", "enwik8", "text8", "imdb"]
ALL += ["mnist", "pmnist"]


def test_catalogue_has_every_data_set_of_the_paper():
    assert list(data.CATALOGUE) == ALL


@pytest.mark.parametrize("name", ALL)
def test_entry_is_complete(name):
    entry = data.data_set(name)
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


def test_views_share_the_files_of_another_data_set():
    assert data.data_set("ptb-chars").files == data.data_set("ptb-words").files
    assert data.data_set("pmnist").files == data.data_set("mnist").files


def test_misspelt_name_gets_a_suggestion():
    with pytest.raises(ValueError, match="got 'PTB_words'; did you mean 'ptb-words'"):
        data.load("PTB_words")


def test_missing_data_names_command_url_and_path(tmp_path):
    with pytest.raises(data.MissingData) as error:
        data.load("text8", tmp_path)
    for word in ("http://mattmahoney.net/dc/text8.zip", str(tmp_path / "text8/text8.zip"), "rru data fetch text8"):
        assert word in str(error.value)


def test_bach_description_says_it_is_not_jsb():
    assert "not JSB Chorales" in data.data_set("bach").description


def test_counts_of_bach_match_the_embedded_file():
    bach = data.load("bach")
    splits = (bach.train, bach.valid, bach.test)
    assert [len(split) for split in splits] == data.data_set("bach").statistics["pieces"]
    assert [sum(map(len, split)) for split in splits] == data.data_set("bach").statistics["steps"]


@pytest.mark.parametrize("options", [{"line_ends": True}, {"speed": True}, {"verify": 1}])
def test_unknown_option_is_rejected(options, tmp_path):
    with pytest.raises(TypeError, match="enwik8 takes the options verify, True or False; got"):
        data.load("enwik8", tmp_path, **options)
