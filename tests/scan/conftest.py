import pytest

from rru.scan.native import library
from tests.scan.case import using


@pytest.fixture(params=library.INSTRUCTION_SETS)
def each_instruction_set(request):
    """Run a test with every instruction set that this processor has."""
    with using(request.param):
        yield
