import pytest

from tests.report.samples import everything


@pytest.fixture(scope="session")
def all_runs(tmp_path_factory):
    """A folder with runs of every kind."""
    return everything(tmp_path_factory.mktemp("all") / "runs")
