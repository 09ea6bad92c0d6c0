import pytest

from rru.scan.native import call, library
from tests.scan.case import using


@pytest.fixture(params=library.INSTRUCTION_SETS)
def each_instruction_set(request):
    """Run a test with every instruction set that this processor has."""
    with using(request.param):
        yield


@pytest.fixture
def loops(monkeypatch):
    """List the native loops that run, by name."""
    original, used = call.function_of, []

    def function_of(direction, cell, *fields):
        used.append(f"{cell.name}_{direction}")
        return original(direction, cell, *fields)

    monkeypatch.setattr(call, "function_of", function_of)
    return used
