import pytest
import torch
from hypothesis import settings

settings.register_profile("rru", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("rru")


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
