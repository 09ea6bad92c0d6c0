import tracemalloc

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Prepared forms go to a folder of the test's own, and no data folder is set."""
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("RRU_DATA_DIR", raising=False)
    return tmp_path / "cache" / "prepared"


@pytest.fixture
def little_memory():
    """The test may not take much memory, whatever a file promises."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20
