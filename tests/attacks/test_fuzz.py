"""Random changes to files of every format: a reader returns data or raises DataError."""

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rru import data
from tests.attacks.hostile import prepare
from tests.data import samples

REAL = Path(__file__).parents[3] / "shared" / "data"

_IMAGES, _LABELS = samples.digits(2)
_MNIST = {
    f"{stem}-{kind}": samples.idx_bytes(array)
    for stem in ("train", "t10k")
    for kind, array in (("images-idx3-ubyte", _IMAGES), ("labels-idx1-ubyte", _LABELS))
}
_TREEBANK = {f"ptb.{split}.txt": text.encode() for split, text in samples.WORDS.items()}
_ROLLS = samples.pieces()

# data set, file to change, its content, other files in the folder
FORMATS = {
    "mat": ("jsb", "JSB_Chorales.mat", samples.mat_bytes(_ROLLS, compressed=False), {}),
    "compressed mat": ("jsb", "JSB_Chorales.mat", samples.mat_bytes(_ROLLS), {}),
    "pickle 0": ("jsb", "JSB Chorales.pickle", samples.pickle_bytes(_ROLLS, 0), {}),
    "pickle 5": ("jsb", "JSB Chorales.pickle", samples.pickle_bytes(_ROLLS, 5), {}),
    "idx": ("mnist", "train-images-idx3-ubyte", _MNIST["train-images-idx3-ubyte"], _MNIST),
    "compressed idx": ("mnist", "train-images-idx3-ubyte.gz", gzip.compress(_MNIST["train-images-idx3-ubyte"]), _MNIST),
    "labels": ("mnist", "train-labels-idx1-ubyte", _MNIST["train-labels-idx1-ubyte"], _MNIST),
    "words": ("ptb-words", "ptb.train.txt", _TREEBANK["ptb.train.txt"], _TREEBANK),
    "treebank archive": (
        "ptb-words",
        "simple-examples.tgz",
        samples.tar_bytes([(f"simple-examples/data/{name}", text) for name, text in _TREEBANK.items()]),
        {},
    ),
    "bytes": ("enwik8", "enwik8", b"some text of bytes " * 9, {}),
    "zip": ("enwik8", "enwik8.zip", samples.zip_bytes("enwik8", b"some text of bytes " * 9), {}),
    "gz": ("enwik8", "enwik8.gz", gzip.compress(b"some text of bytes " * 9), {}),
    "tar": ("imdb", "aclImdb.tar", samples.tar_bytes(samples.reviews(5, 1), packed=False), {}),
    "compressed tar": ("imdb", "aclImdb.tar.gz", samples.tar_bytes(samples.reviews(5, 1)), {}),
}


@st.composite
def changes(draw):
    """Positions, as a fraction of the file, and changes: overwrite, insert, delete, repeat or truncate."""
    kinds = ("bytes", "insert", "delete", "repeat", "cut")
    some = draw(
        st.lists(st.tuples(st.floats(0, 1), st.sampled_from(kinds), st.binary(min_size=1, max_size=8)), max_size=5)
    )
    return some


def changed(content, some):
    for share, kind, given_bytes in some:
        at, size = int(share * len(content)), len(given_bytes)
        before, here, after = content[:at], content[at : at + size], content[at + size :]
        replaced = {"bytes": given_bytes, "insert": given_bytes + here, "delete": b"", "repeat": here * 3, "cut": here}
        content = before + replaced[kind] + (b"" if kind == "cut" else after)
    return content


def _assert_data_or_data_error(name, folder):
    named = str(folder)
    try:
        prepare(name, folder)
    except data.DataError as error:
        named = str(error)
    assert str(folder) in named


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some=changes())
def test_changed_file_gives_data_or_a_data_error(form, some, tmp_path):
    name, file, content, beside = FORMATS[form]
    for other, given_bytes in beside.items():
        if other != file.removesuffix(".gz"):
            samples.write(tmp_path, other, given_bytes)
    samples.write(tmp_path, file, changed(content, some))
    _assert_data_or_data_error(name, tmp_path)


@pytest.mark.parametrize("form", ["JSB_Chorales.mat", "JSB Chorales.pickle"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_random_bytes_after_a_valid_header(form, content, tmp_path):
    beginning = samples.mat_bytes(_ROLLS)[:128] if form.endswith("mat") else b"\x80\x02}q\x00("
    samples.write(tmp_path, form, beginning + content)
    _assert_data_or_data_error("jsb", tmp_path)


@pytest.mark.skipif(not (REAL / "music/JSB_Chorales.mat").is_file(), reason="jsb is not in ../shared/data")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some=changes())
def test_changed_jsb(some, tmp_path):
    content = (REAL / "music/JSB_Chorales.mat").read_bytes()
    samples.write(tmp_path, "JSB_Chorales.mat", changed(content, some))
    _assert_data_or_data_error("jsb", tmp_path)


@pytest.mark.skipif(not (REAL / "mnist/t10k-labels-idx1-ubyte.gz").is_file(), reason="mnist is not in ../shared/data")
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some=changes())
def test_changed_mnist_labels(some, tmp_path):
    for other, content in _MNIST.items():
        samples.write(tmp_path, other, content)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    content = (REAL / "mnist/t10k-labels-idx1-ubyte.gz").read_bytes()
    samples.write(tmp_path, "train-labels-idx1-ubyte.gz", changed(content, some))
    _assert_data_or_data_error("mnist", tmp_path)
