import importlib
import io

import pytest
from rich.console import Console


@pytest.fixture
def terminal(monkeypatch):
    """Standard error is a terminal; what it was sent is in `terminal.file`."""
    shown = Console(file=io.StringIO(), force_terminal=True, width=100)
    for name in ("console", "demo", "display", "plan_bars", "plan_view", "tune"):
        monkeypatch.setattr(importlib.import_module(f"rru.cli.{name}"), "err", shown)
    return shown
