"""Which folder is the data folder, and which sets are in it."""

from pathlib import Path

import pooch
import pytest

from rru import data
from tests.data import samples


def test_given_then_named_by_the_environment_then_the_users_cache(tmp_path, monkeypatch):
    assert data.data_dir() == Path(pooch.os_cache("rru"))
    monkeypatch.setenv("RRU_DATA_DIR", str(tmp_path / "named"))
    assert data.data_dir() == tmp_path / "named"
    assert data.data_dir(tmp_path / "given") == tmp_path / "given"


def test_load_reads_the_folder_the_environment_names(tmp_path, monkeypatch):
    samples.write(tmp_path, "text8", b"ab" * 50)
    monkeypatch.setenv("RRU_DATA_DIR", str(tmp_path))
    assert len(data.load("text8", verify=False).train) == 90


@pytest.mark.parametrize("name", [name for name in data.CATALOGUE if name != "bach"])
def test_files_as_downloaded_are_found(name, tmp_path):
    entry = data.entry(name)
    assert data.present(entry, tmp_path) is None
    for file in entry.files:
        samples.write(tmp_path, file.path, b"-")
    found = data.present(entry, tmp_path)
    assert found is not None
    assert [part.remote for part in found.parts] == list(entry.files)
    assert all(part.as_published for part in found.parts)


def test_a_set_that_is_only_half_there_is_missing(tmp_path):
    entry = data.entry("mnist")
    samples.write(tmp_path, entry.files[0].path, b"-")
    assert data.present(entry, tmp_path) is None


def test_the_embedded_set_is_always_present(tmp_path):
    assert data.present(data.entry("bach"), tmp_path) is not None


def test_a_folder_that_is_not_there_holds_nothing(tmp_path):
    assert all(data.present(entry, tmp_path / "no") is None for entry in data.CATALOGUE.values() if entry.files)
