import pytest

from tests.training.toy import outcome, train_in


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
    """What comes of the toy run if nothing happens to it."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    train_in(folder)
    return outcome(folder)
