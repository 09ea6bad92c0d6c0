"""`rru data`, as a user types it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rru.cli.commands import app
from rru.data import CATALOGUE
from tests import web


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RRU_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with web.serving() as address:
        yield address


def run(*words: str, code: int = 0) -> tuple[str, str]:
    """Standard output and standard error of `rru data ...`."""
    result = CliRunner().invoke(app, ["data", *words])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.stdout, result.stderr


@pytest.fixture
def offered(server: str, monkeypatch: pytest.MonkeyPatch):
    """Put a set called jsb, of one file with this address, in the place of the real one."""

    def offer(path: str) -> None:
        monkeypatch.setattr("rru.cli.data.data_set", lambda name: web.data_set(f"{server}/{path}"))

    return offer


def test_list_shows_every_set_and_where_it_is() -> None:
    out, _ = run("list")
    rows = {line.split()[0]: line for line in out.splitlines() if line.split()}
    assert set(CATALOGUE) <= set(rows)
    assert "in the package" in rows["bach"]
    assert "96.1 kB" in rows["jsb"]
    assert all("not here" in rows[name] for name in CATALOGUE if name != "bach")
    assert all(len(line) <= 80 for line in out.splitlines() if not line.startswith("data folder: "))


def test_list_shows_files_in_the_folder(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "enwik8").mkdir(parents=True)
    (mine / "enwik8" / "enwik8").write_bytes(b"")
    out, _ = run("list", "--data-dir", str(mine))
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.split()}
    assert rows["enwik8"][-1] == "here"
    assert out.endswith(f"data folder: {mine}\n")


@pytest.mark.parametrize("name", CATALOGUE)
def test_info_shows_the_whole_card(name: str, tmp_path: Path) -> None:
    out, _ = run("info", name)
    words = " ".join(out.split())
    assert CATALOGUE[name].title in words
    assert CATALOGUE[name].licence in words
    assert CATALOGUE[name].citation in words
    assert CATALOGUE[name].description in words
    for file in CATALOGUE[name].files:
        assert file.url in out
        assert file.hash in out
        assert str(tmp_path / "data" / file.path) in out


def test_info_of_bach_says_it_is_not_jsb() -> None:
    assert "It is not JSB Chorales" in " ".join(run("info", "bach")[0].split())


def test_info_gives_counts() -> None:
    out, _ = run("info", "jsb")
    assert "229 / 76 / 77" in out


@pytest.mark.parametrize("command", ["info", "fetch", "verify"])
def test_an_unknown_name_is_one_line_with_a_guess(command: str) -> None:
    out, err = run(command, "jbs", code=2)
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("error: ")
    assert "did you mean 'jsb'?" in err


def test_fetch_prints_plain_lines(offered, tmp_path: Path) -> None:
    offered("whole")
    out, err = run("fetch", "jsb")
    first, second = out.splitlines()
    assert first.endswith(f" -> {tmp_path / 'data' / 'set' / 'file0'}")
    assert second == f"set: downloaded 1 file with the right hash to {tmp_path / 'data'}"
    assert err == "Next: rru train jsb --preset cpu\n"
    assert (tmp_path / "data" / "set" / "file0").read_bytes() == web.CONTENT
    assert "as published" in run("verify", "jsb")[0]
    assert "already here" in run("fetch", "jsb")[0]


@pytest.mark.parametrize("path", ["missing", "half", "changed", "endless"])
def test_failed_fetch_is_one_line_and_leaves_no_files(offered, tmp_path: Path, path: str) -> None:
    offered(path)
    _, err = run("fetch", "jsb", code=1)
    assert len(err.splitlines()) == 1
    assert f"/{path}" in err
    assert not (tmp_path / "data").exists()


def test_ctrl_c_ends_a_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rru.cli.data.fetch_files", interrupted)
    assert run("fetch", "jsb", code=130) == ("", "stopped\n")


def test_fetch_of_the_embedded_set_has_nothing_to_do() -> None:
    assert run("fetch", "bach") == (
        "bach: part of the package, nothing to download\n",
        "Next: rru train bach --preset cpu\n",
    )


def test_verify_checks_present_sets_by_default(tmp_path: Path) -> None:
    out, _ = run("verify")
    assert out.splitlines() == ["bach: rru/data/bach.npz: embedded in the package", f"data folder: {tmp_path / 'data'}"]


def test_verify_ends_with_1_for_a_wrong_file_and_for_a_named_one_that_is_missing(tmp_path: Path) -> None:
    assert "jsb: music/JSB_Chorales.mat: missing" in run("verify", "jsb", code=1)[0]
    (tmp_path / "data" / "music").mkdir(parents=True)
    (tmp_path / "data" / "music" / "JSB_Chorales.mat").write_bytes(b"MATLAB 5.0 MAT-file")
    assert "jsb: music/JSB_Chorales.mat: WRONG: " in run("verify", code=1)[0]


def test_path_follows_the_option_then_the_environment_then_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("path") == (f"{tmp_path / 'data'}\n", "")
    assert run("path", "--data-dir", str(tmp_path / "other")) == (f"{tmp_path / 'other'}\n", "")
    monkeypatch.delenv("RRU_DATA_DIR")
    assert "rru" in run("path")[0]


def test_every_command_takes_a_data_folder() -> None:
    for command in ("list", "info", "fetch", "verify", "path"):
        assert "--data-dir" in run(command, "--help")[0]


def test_runs_as_a_program(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "rru"]
    told = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True)
    assert told.stdout == f"rru {version('rru')}\n"
    environment = os.environ | {"RRU_DATA_DIR": str(tmp_path / "mine")}
    wrong = subprocess.run([*program, "data", "info", "emwik8"], capture_output=True, text=True, env=environment)
    assert wrong.returncode == 2
    assert wrong.stdout == ""
    assert wrong.stderr.count("\n") == 1
    assert "did you mean 'enwik8'?" in wrong.stderr


def test_list_says_who_does_not_state_the_size_of_a_download() -> None:
    listed, _ = run("list")
    assert listed.count("not stated by its source") == listed.count("not stated") > 0
