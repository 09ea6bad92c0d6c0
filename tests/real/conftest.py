from pathlib import Path

import pytest

from rru import data

FOLDER = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One cache for all tests here, so that every set is prepared once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def real(cache, monkeypatch):
    """Loads a set from ../shared/data; skips the test if it is not there."""
    monkeypatch.setenv("RRU_CACHE_DIR", str(cache))

    def load(name, **options):
        if data.present(data.entry(name), FOLDER) is None:
            pytest.skip(f"{name} is not in ../shared/data")
        return data.load(name, FOLDER, **options)

    return load
