from pathlib import Path

import pytest

from rru import data

FOLDER = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One cache for all tests, so that every data set is prepared once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def real(cache, monkeypatch):
    """Return a function that loads a data set from ../shared/data, or skips the test if it is missing."""
    monkeypatch.setenv("RRU_CACHE_DIR", str(cache))

    def load(name, **options):
        if data.present(data.data_set(name), FOLDER) is None:
            pytest.skip(f"{name} is not in ../shared/data")
        return data.load(name, FOLDER, **options)

    return load
