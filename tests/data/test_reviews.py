"""IMDB reviews from the folder or a tar archive."""

import numpy as np
import pytest

from rru import data
from rru.data.reviews import words_of
from tests.data import samples


def _tree(folder):
    for name, content in samples.reviews():
        samples.write(folder, name, content)


def _tar(name, packed, extra=()):
    def make(folder):
        samples.write(folder, name, samples.tar_bytes([*reversed(list(samples.reviews())), *extra], packed))

    return make


UNLABELLED = [("aclImdb/train/unsup/0_0.txt", b"unlabelled"), ("aclImdb/README", b"about")]


@pytest.mark.parametrize(
    "make",
    [
        _tree,
        lambda folder: _tree(folder / "imdb"),
        _tar("aclImdb_v1.tar.gz", True, UNLABELLED),
        _tar("imdb/aclImdb_labelled.tar.gz", True),
        _tar("aclImdb.tar", False),
    ],
    ids=["tree", "tree below", "whole archive", "labelled archive", "unpacked tar"],
)
def test_every_form_gives_the_same_reviews(make, tmp_path):
    make(tmp_path)
    reviews = data.load("imdb", tmp_path, verify=False)
    assert [len(part) for part in (reviews.train, reviews.valid, reviews.test)] == [16, 4, 8]
    tokens, label = reviews.train[-1]
    assert label == 1
    assert reviews.vocabulary.decode(tokens) == "a good film it's film number 7 isn't it"
    assert tokens.dtype == np.uint16


def test_validation_split_is_the_last_fifth_of_each_label(tmp_path):
    _tree(tmp_path)
    reviews = data.load("imdb", tmp_path, verify=False)
    assert reviews.valid.labels.tolist() == [0, 0, 1, 1]
    assert reviews.test.labels.mean() == 0.5
    unknown = reviews.vocabulary.decode(reviews.valid[0][0])
    assert unknown == "a bad film it's film number <unk> isn't it"  # 8 occurs in no training review


def test_words_are_lower_case_without_punctuation():
    assert words_of("Don't!<br />A 'CAFÉ'-scene, #1 (ever)_") == ["don't", "a", "café", "scene", "1", "ever"]


def test_incomplete_reviews_are_rejected(tmp_path):
    _tree(tmp_path)
    with pytest.raises(data.DataError, match=r"must have \[20000, 5000, 25000\] reviews .*, got \[16, 4, 8\]"):
        data.load("imdb", tmp_path)


def test_missing_label_is_rejected(tmp_path):
    members = [(name, content) for name, content in samples.reviews() if "test/pos" not in name]
    samples.write(tmp_path, "aclImdb.tar.gz", samples.tar_bytes(members))
    with pytest.raises(data.DataError, match="none labelled pos for test"):
        data.load("imdb", tmp_path, verify=False)
