"""What tests of experiments share."""

import re
import sys
from pathlib import Path

import pytest

from rru.experiments import own
from rru.nn import registry
from rru.scan import operator

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def janet(tmp_path, monkeypatch):
    """The file that CONTRIBUTING.md shows; what it registers is forgotten afterwards."""
    (source,) = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)
    (tmp_path / "janet.py").write_text(source)
    monkeypatch.setattr(registry, "_layers", dict(registry._layers))
    monkeypatch.setattr(operator, "registered", dict(operator.registered))
    monkeypatch.setenv(own.VARIABLE, "")
    yield tmp_path / "janet.py"
    sys.modules.pop("rru_own_janet", None)
