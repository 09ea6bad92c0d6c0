import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Prepared forms go to a folder of the test's own, and no data folder is set."""
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("RRU_DATA_DIR", raising=False)
    return tmp_path / "cache" / "prepared"
