"""Escape codes in files and names are printed as text."""

import json

import pytest

from rru.cli.commands import app
from tests.report.samples import change_result, preset, write_run

ESCAPE = "\x1b]0;owned\x07\x1b[2J"


@pytest.fixture
def command(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, arguments).output


@pytest.fixture
def folder(tmp_path):
    """A run whose folder, settings, result and metrics hold escape codes."""
    folder = write_run(tmp_path / "runs", preset(), folder=tmp_path / "runs" / f"name{ESCAPE}\n")
    change_result(folder, **{ESCAPE: 1}, reason=ESCAPE, test={ESCAPE: 1.0})
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(f"{ESCAPE}\n")
    return folder


def test_of_runs_and_report(command, folder):
    for arguments in (["runs"], ["report"]):
        shown = command(*arguments)
        assert "damaged: " in shown
        assert "\\x1b]0;owned\\x07" in shown
        assert not {"\x1b", "\x07"} & set(shown)
        assert "name\\x1b]0;owned\\x07\\x1b[2J\\n" in shown  # one line


def test_of_a_result_that_resume_and_plan_show(command, tmp_path):
    entry = preset(name="smoke", task="bach")
    folder = write_run(tmp_path / "runs", entry, reason=ESCAPE, metric=ESCAPE)
    change_result(folder, test={ESCAPE: 1.0})
    for arguments in (["resume", str(folder)], ["plan", "table1", "--preset", "smoke", "--tasks", "bach"]):
        shown = command(*arguments)
        assert "\\x1b" in shown
        assert "\x1b" not in shown


def test_non_finite_score_is_shown_as_a_dash(command, tmp_path):
    entry = preset(name="smoke", task="bach")
    folder = write_run(tmp_path / "runs", entry)
    names = ("mase", "mase_last", "mase_seasonal")
    change_result(folder, test={"nll": None, "mase_last": 1.0, **dict.fromkeys(names[::2])})
    for arguments in (["resume", str(folder)], ["runs"]):
        assert "\N{EN DASH}" in command(*arguments)


def test_of_errors(command, folder):
    (folder / "result.json").write_text(json.dumps({ESCAPE: 1}))
    shown = command("resume", str(folder))
    assert "error: " in shown
    assert "\x1b" not in shown


def test_finished_run_is_shown_without_its_data_on_a_read_only_disk(command, tmp_path):
    folder = write_run(tmp_path / "runs", preset())  # its data is not here
    folder.chmod(0o555)
    try:
        shown = command("resume", str(folder))
    finally:
        folder.chmod(0o755)
    assert "finished: no better validation" in shown
