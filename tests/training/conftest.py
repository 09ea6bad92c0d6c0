import os

import pytest
import torch

from tests.training.toy import outcome, train_in


@pytest.fixture(autouse=True)
def _always_one_thread(one_thread):
    pass


@pytest.fixture(autouse=True)
def _unhurried_disk(monkeypatch):
    """No test pulls the plug, and what was written outlives a process that is killed."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
    """What comes of the toy run if nothing happens to it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    train_in(folder)
    torch.set_num_threads(threads)
    return outcome(folder)
