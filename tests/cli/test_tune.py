"""Searching by command."""

import json
import re
import shlex

import pytest
from typer.testing import CliRunner

from rru.cli.commands import app
from rru.training import find_runs, from_config
from tests.experiments.searcher import toy_runs


@pytest.fixture
def rru_command(tmp_path, monkeypatch):
    """Run a command in an empty folder, on runs of milliseconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(from_config, "assemble", toy_runs)
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments])


def smoke(*more):
    return ("tune", "bach", "--preset", "smoke", "--trials", 3, *more)


def test_search_ends_with_the_winner_and_its_command(rru_command, tmp_path):
    ran = rru_command(*smoke("--set", "schedule.epochs=1"))
    assert ran.exit_code == 0, ran.output
    assert len(re.findall(r"^trial \d: nll ", ran.output, flags=re.MULTILINE)) == 3
    results = {path: json.loads(path.read_bytes()) for path in tmp_path.glob("runs/bach/rru/*/result.json")}
    best, *others = sorted(results.values(), key=lambda result: result["best"])
    assert len(others) == 2
    assert f"test  nll {best['test']['nll']:.4f}" in ran.output
    assert not any(f"{other['test']['nll']:.4f}" in ran.output for other in others)
    (figure,) = tmp_path.glob("runs/bach/rru/studies/*/importance.svg")
    assert "optimiser.lr" in figure.read_text()

    (command,) = re.findall(r"^to train it again: rru (.*)$", ran.output, flags=re.MULTILINE)
    again = rru_command(*shlex.split(command))
    assert again.exit_code == 0
    assert f"NLL {best['test']['nll']:.4f}" in again.output
    assert len(find_runs(tmp_path)) == 3  # it names the very run


def test_user_cell_is_searched(rru_command, janet):
    ran = rru_command("--cells", janet, "tune", "bach", "--cell", "janet", "--preset", "smoke", "--trials", 1)
    assert ran.exit_code == 0, ran.output
    (command,) = re.findall(r"^to train it again: rru (.*)$", ran.output, flags=re.MULTILINE)
    assert shlex.split(command)[:2] == ["--code", str(janet)]
    assert rru_command(*shlex.split(command)).exit_code == 0


def test_repeated_command_runs_only_missing_trials(rru_command, tmp_path):
    first, again = rru_command(*smoke()), rru_command(*smoke())
    assert first.output.splitlines()[-3:] == again.output.splitlines()[-3:]
    assert "trial 0:" not in again.output
    more = rru_command(*smoke("--trials", 4))
    assert re.findall(r"^trial (\d):", more.output, flags=re.MULTILINE) == ["3"]


def test_show_runs_and_tests_nothing(rru_command, tmp_path):
    assert "no trials yet" in rru_command(*smoke("--show")).output
    assert not (tmp_path / "runs").exists()
    done = rru_command(*smoke())
    assert rru_command(*smoke("--show")).output.splitlines() == done.output.splitlines()[8:]
    unfinished = rru_command(*smoke("--show", "--trials", 30)).output
    assert "3 of 30 trials: 3 finished" in unfinished
    assert "test" not in unfinished


def test_a_terminal_shows_bars_and_the_best_so_far(rru_command, terminal):
    ran = rru_command(*smoke())
    assert ran.exit_code == 0, ran.output
    assert "trial 0:" not in ran.output
    for shown in ("trials", "3/3", "trial 2", "best nll"):
        assert shown in terminal.file.getvalue()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tune", "bch"), "did you mean 'bach'"),
        (smoke("--set", "lrr=1"), "did you mean optimiser.lr"),
        (smoke("--set", "lr"), "a change must be key=value"),
        (
            smoke("--cell", "gru", "--set", "lr=1e-3", "--set", "dropout=0", "--set", "budget=30k"),
            "nothing is left to search",
        ),
    ],
)
def test_mistakes_are_one_line_errors(rru_command, arguments, said):
    ran = rru_command(*arguments)
    assert ran.exit_code == 2
    assert said in ran.output
    assert len(ran.output.splitlines()) == 1


def test_chorales_can_be_searched(tmp_path):
    ran = CliRunner().invoke(
        app, ["tune", "bach", "--cell", "gru", "--preset", "smoke", "--trials", "2", "--runs", str(tmp_path)]
    )
    assert ran.exit_code == 0, ran.output
    assert len(find_runs(tmp_path)) == 2
