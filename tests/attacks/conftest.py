import tracemalloc

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Give each test its own cache folder, and no data folder. Return the folder of cached arrays."""
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("RRU_DATA_DIR", raising=False)
    return tmp_path / "cache" / "prepared"


@pytest.fixture
def little_memory():
    """Fail the test if it allocates 32 MiB or more."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20
