import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Give each test its own cache folder, and no data folder. Return the folder of cached arrays."""
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("RRU_DATA_DIR", raising=False)
    return tmp_path / "cache" / "prepared"
