"""What is shown in a terminal."""

import io

from rich.console import Console

from rru.cli import display


def test_a_row_that_waits_for_its_turn_can_be_shown(monkeypatch):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(display, "err", terminal)
    with display.bars() as progress:
        progress.add_task("lstm", total=None, start=False, says="waits")
    assert "0/?" in terminal.file.getvalue()
    assert "waits" in terminal.file.getvalue()
