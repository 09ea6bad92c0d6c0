"""`rru report`, as a user types it."""

import os
import signal
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rru
from rru.cli.commands import app
from tests.report.samples import preset, write_run
from tests.timeouts import TIMEOUT


@pytest.fixture
def rru_report(tmp_path, monkeypatch):
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, ["report", *map(str, arguments)])


def test_report_reads_runs_by_default(rru_report, tmp_path):
    write_run(tmp_path / "runs", preset(), 7.8)
    ran = rru_report()
    assert ran.exit_code == 0, ran.output
    assert ran.output.splitlines() == [
        "RRU reaches NLL 7.80 on JSB Chorales; one seed.",
        "1 run (1 finished); written to runs/report.html",
    ]
    assert "7.8000" in (tmp_path / "runs" / "report.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_verbose_names_every_table_and_figure(rru_report, tmp_path):
    write_run(tmp_path / "runs", preset(), 7.8)
    assert rru_report("--verbose").output.splitlines()[:2] == [
        "paper: Table 1: JSB Chorales. No runs of GRU, LSTM, Mogrifier LSTM.",
        "paper: Convergence: JSB Chorales. No runs of GRU, LSTM, Mogrifier LSTM.",
    ]


def test_page_is_in_the_first_folder_that_exists(rru_report, tmp_path):
    write_run(tmp_path / "one", preset(), 7.8)
    assert "written to one/report.html" in rru_report("nowhere", "one").output


def test_open_shows_the_page_in_the_browser(rru_report, tmp_path, monkeypatch):
    addresses = []
    monkeypatch.setattr(webbrowser, "open_new_tab", lambda address: addresses.append(address) or True)
    write_run(tmp_path / "runs", preset(), 7.8)
    assert rru_report().exit_code == 0
    assert addresses == []
    assert rru_report("--open", "-o", "my page.html").exit_code == 0
    assert addresses == [f"{tmp_path.as_uri()}/my%20page.html"]


def test_without_a_browser_open_says_so(rru_report, tmp_path, monkeypatch):
    monkeypatch.setattr(webbrowser, "open_new_tab", lambda address: False)
    write_run(tmp_path / "runs", preset(), 7.8)
    ran = rru_report("--open")
    assert ran.exit_code == 0
    assert "there is no browser to open runs/report.html with" in ran.output


def test_report_takes_folders_and_files(rru_report, tmp_path):
    write_run(tmp_path / "one", preset(), 7.8)
    write_run(tmp_path / "two", preset(cell="gru"), 8.5)
    ran = rru_report("one", "two", "-o", "out/page.html", "--csv", "out/n.csv", "--markdown", "out/n.md")
    assert ran.exit_code == 0, ran.output
    assert "2 runs (2 finished); written to out/page.html, out/n.csv, out/n.md" in ran.output
    for name in ("page.html", "n.csv", "n.md"):
        assert "8.5" in (tmp_path / "out" / name).read_text()


def test_unreadable_runs_are_named_and_others_shown(rru_report, tmp_path):
    write_run(tmp_path / "runs", preset(), 7.8)
    broken = write_run(tmp_path / "runs", preset(cell="gru"), 8.5)
    (broken / "config.toml").write_text("oops")
    ran = rru_report()
    assert ran.exit_code == 0
    assert f"{broken.relative_to(tmp_path) / 'config.toml'}: cannot be read" in ran.output
    assert "2 runs (1 damaged, 1 finished)" in ran.output


@pytest.mark.parametrize("roots", [[], ["nowhere"], ["nowhere", "neither"]])
def test_report_without_runs_fails(rru_report, tmp_path, roots):
    ran = rru_report(*roots)
    assert ran.exit_code == 1
    assert f"no runs in {', '.join(roots) or 'runs'}" in ran.output
    assert len(ran.output.splitlines()) == 1
    assert not list(tmp_path.rglob("report.html"))


def test_unwritable_output_is_a_one_line_error(rru_report, tmp_path):
    write_run(tmp_path / "runs", preset(), 7.8)
    (tmp_path / "taken").touch()
    ran = rru_report("-o", "taken/page.html")
    assert ran.exit_code == 1
    assert "taken" in ran.output.splitlines()[-1]


def test_ctrl_c_ends_watching_with_a_static_page(tmp_path):
    write_run(tmp_path / "runs", preset(), 7.8)
    command = [sys.executable, "-m", "rru", "report", "--watch", "--every", "3600"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(Path(rru.__file__).parents[1])}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as watching:
        try:
            assert "watching runs" in watching.stdout.readline()
            assert "report.html: 1 run (1 finished)" in watching.stdout.readline()
            assert 'data-every="3600' in (tmp_path / "runs" / "report.html").read_text()
            watching.send_signal(signal.SIGINT)
            assert watching.wait(TIMEOUT) == 0
        finally:
            watching.kill()
    assert "data-every" not in (tmp_path / "runs" / "report.html").read_text()
    assert [path.name for path in tmp_path.rglob("*") if "unfinished" in path.name] == []
