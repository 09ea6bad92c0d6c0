"""The real data sets, if present in ../shared/data: counts, published hashes, memory."""

import hashlib
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.io

from rru import data
from rru.data.own.formats import FORMATS
from tests.real.conftest import FOLDER

KNOWN = {  # a file in ../shared/data for each data set that may be there
    "jsb": "music/JSB_Chorales.mat",
    "nottingham": "music/Nottingham.mat",
    "ptb-words": "ptb/ptb.train.txt",
    "ptb-chars": "ptb/ptb.train.txt",
    "enwik8": "enwik8/enwik8.gz",
    "imdb": "imdb/aclImdb_labelled.tar.gz",
    "mnist": "mnist/train-images-idx3-ubyte.gz",
    "pmnist": "mnist/train-images-idx3-ubyte.gz",
}
MUSIC = ["jsb", "nottingham", "musedata", "piano-midi"]


def _splits(loaded):
    return loaded.train, loaded.valid, loaded.test


@pytest.mark.parametrize("name", KNOWN)
def test_data_set_is_found(name):
    if not (FOLDER / KNOWN[name]).exists():
        pytest.skip(f"{name} is not in ../shared/data")
    assert data.present(data.data_set(name), FOLDER) is not None


@pytest.mark.parametrize("name", MUSIC)
def test_music(name, real):
    music = real(name)
    statistics = data.data_set(name).statistics
    assert [len(split) for split in _splits(music)] == statistics["pieces"]
    if "steps" in statistics:
        assert [sum(map(len, split)) for split in _splits(music)] == statistics["steps"]
    for piece in (*music.train, *music.valid, *music.test):
        assert piece.shape[1:] == (88,)
        assert piece.dtype == np.uint8
        assert piece.max(initial=0) <= 1


@pytest.mark.parametrize("name", MUSIC)
def test_music_matches_scipy(name, real):
    music = real(name)
    (path,) = data.find(data.data_set(name), FOLDER).paths
    if path.suffix != ".mat":
        pytest.skip(f"{name} is not there as .mat")
    for split, pieces in zip(("traindata", "validdata", "testdata"), _splits(music), strict=True):
        expected = scipy.io.loadmat(path, variable_names=[split])[split][0]
        assert len(pieces) == len(expected)
        assert all(map(np.array_equal, pieces, expected))


def test_words_with_and_without_line_ends(real):
    ends = real("ptb-words", line_ends=True)
    assert [len(split) for split in _splits(ends)] == [929_589, 73_760, 82_430]
    assert len(ends.vocabulary) - 1 == 10_000  # with <unk> and <eos>, without padding
    plain = real("ptb-words")
    assert [len(split) for split in _splits(plain)] == data.data_set("ptb-words").statistics["tokens"]
    line_end = ends.vocabulary.ids["<eos>"]
    for with_ends, without in zip(_splits(ends), _splits(plain), strict=True):
        words = with_ends[with_ends != line_end][:5000]
        assert ends.vocabulary.decode(words) == plain.vocabulary.decode(without[:5000])
    assert plain.vocabulary.decode(plain.valid[:5]) == "consumers may want to move"


def test_characters_match_the_published_files_byte_for_byte(real):
    text = real("ptb-chars")
    hashes = data.data_set("ptb-chars").statistics["published_sha256"]
    sizes = (10_034_964, 786_084, 884_846)
    found = data.find(data.data_set("ptb-chars"), FOLDER)
    for part, expected, size, tokens in zip(found.parts, hashes, sizes, _splits(text), strict=True):
        if part.form != "raw":
            pytest.skip("ptb-chars is not there as text files")
        published = data.published_characters(part.path.read_text(encoding="utf-8")).encode()
        assert len(published) == size
        assert hashlib.sha256(published).hexdigest() == expected
        assert text.vocabulary.decode(tokens).replace(" ", "_").encode() == b"".join(published.split())
    assert [len(split) for split in _splits(text)] == [4_975_414, 389_672, 438_662]
    assert len(text.vocabulary) == 49 + 2


@pytest.mark.parametrize("name", ["enwik8", "text8"])
def test_bytes(name, real):
    text = real(name)
    assert [len(split) for split in _splits(text)] == [90_000_000, 5_000_000, 5_000_000]
    assert (
        len(text.vocabulary)
        == 2 + data.data_set(name).statistics["vocabulary"]
        == 2 + {"enwik8": 205, "text8": 27}[name]
    )
    assert text.train.dtype == np.uint8
    assert isinstance(text.train, np.memmap)


def test_enwik8_decodes_to_its_bytes(real):
    text = real("enwik8")
    back = np.zeros(256, np.uint8)
    back[2:207] = [ord(token) for token in text.vocabulary.tokens[2:]]
    unknown = sum(int((split == text.vocabulary.unknown).sum()) for split in _splits(text))
    assert unknown == 0
    digest = hashlib.sha256()
    for split in _splits(text):
        digest.update(back[split])
    assert f"sha256:{digest.hexdigest()}" == data.data_set("enwik8").files[0].content


def test_reviews(real):
    reviews = real("imdb")
    assert [len(split) for split in _splits(reviews)] == [20_000, 5_000, 25_000]
    assert len(reviews.train) + len(reviews.valid) == 25_000
    assert [split.labels.mean() for split in _splits(reviews)] == [0.5, 0.5, 0.5]
    assert [len(split.tokens) for split in _splits(reviews)] == data.data_set("imdb").statistics["words"]
    assert len(reviews.vocabulary) == 10_000 + 2
    for split in _splits(reviews):
        assert split.offsets[0] == 0
        assert split.offsets[-1] == len(split.tokens)
        assert all(start < end for start, end in pairwise(split.offsets.tolist()))  # no review is empty
    assert reviews.vocabulary.tokens[2] == "the"


def test_images(real):
    images = real("mnist")
    assert [split.images.shape for split in _splits(images)] == [(50_000, 28, 28), (10_000, 28, 28), (10_000, 28, 28)]
    assert np.bincount(images.test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert images.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    np.testing.assert_array_equal(real("pmnist").train.images[0], images.train.images[0])


@pytest.mark.parametrize("name", KNOWN)
def test_second_load_uses_the_cache(name, real, monkeypatch):
    real(name)
    for kind, form in list(FORMATS.items()):
        again = replace(form, prepare_set=lambda *_: pytest.fail("it was prepared again"))
        monkeypatch.setitem(FORMATS, kind, again)
    real(name)


def test_enwik8_is_prepared_in_a_few_hundred_megabytes(tmp_path, real):
    real("enwik8")
    script = (
        "import resource, sys; from rru import data\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "before = peak()\n"
        "data.load('enwik8', sys.argv[1])\n"
        "print(peak() - before)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script, str(FOLDER)],
        env={"RRU_CACHE_DIR": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(answer.stdout) < 400


@pytest.mark.parametrize("options", [{}, {"line_ends": True}])
def test_penn_treebank_as_own_files_matches_the_built_in_set(real, options):
    built_in = real("ptb-words", **options)
    train, valid, test = (FOLDER / "ptb" / f"ptb.{split}.txt" for split in data.SPLITS)
    own = data.from_text(train, by="words", valid=valid, test=test)
    assert own.options["tokenizer"] == "spaces"
    loaded = own.load(**options)
    assert loaded.vocabulary == built_in.vocabulary
    for ours, theirs in zip(_splits(loaded), _splits(built_in), strict=True):
        np.testing.assert_array_equal(ours, theirs)
