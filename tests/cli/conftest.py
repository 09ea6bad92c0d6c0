import importlib
import io

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rru.cli.commands import app


@pytest.fixture
def terminal(monkeypatch):
    """Standard error is a terminal; what it was sent is in `terminal.file`."""
    shown = Console(file=io.StringIO(), force_terminal=True, width=100)
    for name in ("console", "demo", "display", "plan_bars", "plan_view", "tune"):
        monkeypatch.setattr(importlib.import_module(f"rru.cli.{name}"), "err", shown)
    return shown


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))

    def run(*arguments, code=0):
        ran = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert ran.exit_code == code, (ran.output, ran.exception)
        return ran.output

    return run
