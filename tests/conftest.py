import signal

import pytest
import torch
from hypothesis import settings

settings.register_profile("rru", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("rru")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_interrupts():
    """As at a terminal: whatever starts tests in the background may have told them to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
