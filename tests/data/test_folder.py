"""Finding the data folder and the data sets in it."""

import subprocess
import sys
from pathlib import Path

import pooch
import pytest

from rru import data
from tests.data import samples


def test_data_dir_is_the_argument_then_the_environment_then_the_cache(tmp_path, monkeypatch):
    assert data.data_dir() == Path(pooch.os_cache("rru"))
    monkeypatch.setenv("RRU_DATA_DIR", str(tmp_path / "named"))
    assert data.data_dir() == tmp_path / "named"
    assert data.data_dir(tmp_path / "given") == tmp_path / "given"


def test_a_notebook_without_widgets_is_not_warned_of(monkeypatch):
    """By tqdm, which pooch imports."""
    pytest.importorskip("tqdm")
    monkeypatch.delenv("RRU_CACHE_DIR", raising=False)
    program = """
import sys, types
for name in ("IPython", "ipykernel.zmqshell"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["IPython"].get_ipython = lambda: None
sys.modules["ipywidgets"] = None
from rru import data
data.cache_dir()
assert "tqdm.notebook" in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_load_uses_rru_data_dir(tmp_path, monkeypatch):
    samples.write(tmp_path, "text8", b"ab" * 50)
    monkeypatch.setenv("RRU_DATA_DIR", str(tmp_path))
    assert len(data.load("text8", verify=False).train) == 90


@pytest.mark.parametrize("name", ["jsb", "ptb-words", "enwik8", "imdb", "mnist"])  # one of each kind
def test_files_as_downloaded_are_found(name, tmp_path):
    entry = data.data_set(name)
    assert data.present(entry, tmp_path) is None
    for file in entry.files:
        samples.write(tmp_path, file.path, b"-")
    files = data.present(entry, tmp_path)
    assert files is not None
    assert [part.remote for part in files.parts] == list(entry.files)
    assert [part.path for part in files.parts] == [tmp_path / file.path for file in entry.files]


@pytest.mark.parametrize(
    ("name", "other"),
    [("text8", "text8/text8"), ("mnist", "mnist/train-images-idx3-ubyte"), ("imdb", "imdb/aclImdb/train/pos/0_9.txt")],
)
def test_downloaded_file_is_preferred_over_an_unpacked_one(name, other, tmp_path):
    entry = data.data_set(name)
    for file in entry.files:
        samples.write(tmp_path, file.path, b"-")
    samples.write(tmp_path, other, b"damaged")
    if name == "imdb":
        samples.write(tmp_path, "imdb/aclImdb/test/neg/0_1.txt", b"damaged")
    assert [part.path for part in data.present(entry, tmp_path).parts] == [tmp_path / file.path for file in entry.files]


def test_incomplete_data_set_is_missing(tmp_path):
    entry = data.data_set("mnist")
    samples.write(tmp_path, entry.files[0].path, b"-")
    assert data.present(entry, tmp_path) is None


def test_embedded_data_set_is_always_present(tmp_path):
    assert data.present(data.data_set("bach"), tmp_path) is not None


def test_nothing_is_found_in_a_folder_that_does_not_exist(tmp_path):
    assert all(data.present(entry, tmp_path / "no") is None for entry in data.CATALOGUE.values() if entry.files)
