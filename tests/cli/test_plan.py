"""Plans by command, on the embedded chorales."""

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rru.cli import app
from rru.cli.plan import duration
from rru.experiments import workers
from rru.experiments.running import Outcome
from rru.training import Run
from tests.experiments.chorales import entries, folder, trained

BACH = ("table1", "--preset", "smoke", "--tasks", "bach")


@pytest.fixture
def rru_command(tmp_path, monkeypatch):
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments])


def test_every_plan_is_a_line(rru_command):
    shown = rru_command("plan").output.splitlines()
    assert len(shown) == 11
    assert shown[0].split()[:3] == ["table1", "44", "runs"]


def test_a_plan_is_run_shown_and_not_run_again(rru_command, tmp_path):
    one = (*BACH, "--cells", "rru", "--seeds", "0-1")
    before = rru_command("plan", *one).output
    assert "Results: 0 of 2; 2 left." in before
    assert "Time left: unknown" in before
    ran = rru_command("run", *one, "--threads", "1")
    assert ran.exit_code == 0, ran.output
    assert "1 worker, 1 thread each" in ran.output
    assert "2 finished" in ran.output
    after = rru_command("plan", *one, "--seeds", "0-2").output
    for path in tmp_path.glob("runs/bach/rru/*/result.json"):
        assert f"finished: nll {json.loads(path.read_bytes())['test']['nll']:.4f} after 2 epochs" in after
    assert "Results: 2 of 3; 1 left." in after
    assert "an estimate by the runs that ended: about" in after
    again = rru_command("run", *one)
    assert (again.exit_code, "0 of 2 runs to do" in again.output, "begins" in again.output) == (0, True, False)


def test_states_are_shown(rru_command, tmp_path):
    rru, gru, lstm, mogrifier = entries("rru,gru,lstm,mogrifier")
    runs = tmp_path / "runs"
    trained([rru], runs)
    Run.create(folder(gru, runs), gru.config).append({"kind": "epoch", "epoch": 1})
    folder(lstm, runs).mkdir(parents=True)
    (folder(lstm, runs) / "error.txt").write_text("the disk is full\n\nTraceback\n")
    with Run.create(folder(mogrifier, runs), mogrifier.config).locked():
        shown = rru_command("plan", *BACH).output
    for said in ("finished: nll", "unfinished at epoch 1", "failed at epoch 0", "running at epoch 0"):
        assert said in shown
    assert "bach, LSTM, seed 0: the disk is full" in shown


def test_a_large_plan_is_summed_up_unless_all_is_asked_for(rru_command):
    summed = rru_command("plan", "robustness-nottingham").output
    assert len(summed.splitlines()) < 15
    assert [line.split()[-2:] for line in summed.splitlines() if "LSTM" in line] == [["100", "100"]] * 2
    assert rru_command("plan", "robustness-nottingham", "--all").output.count("missing") == 400


def test_of_many_runs_the_best_is_chosen_by_validation(rru_command, tmp_path):
    """The test's score shown is that run's, not the best of all tests."""
    (rru,) = entries("rru")
    trained([rru], tmp_path / "runs")
    result = json.loads((folder(rru, tmp_path / "runs") / "result.json").read_bytes())
    for seed, (best, test) in enumerate([(3.0, 1.0), (2.0, 4.0), (5.0, 3.0)], start=1):
        (one,) = entries("rru", str(seed))
        Run.create(folder(one, tmp_path / "runs"), one.config).write_result(
            {**result, "best": best, "test": {"nll": test}}
        )
    shown = rru_command("plan", *BACH, "--cells", "rru", "--seeds", "0-99").output
    (row,) = [line.split() for line in shown.splitlines() if "bach" in line]
    assert row == ["bach", "RRU", "100", "4", "96", "nll", "4.0000"]


def _pretend(monkeypatch, *statuses):
    """Has workers come to these outcomes."""

    def run(left, root, *, watch, **options):
        done = [Outcome(entry, status, message="so it is") for entry, status in zip(left, statuses, strict=False)]
        for outcome in done:
            watch(outcome)
        return done

    monkeypatch.setattr(workers, "run", run)


def test_a_failed_run_is_reported_and_ends_the_command_with_1(rru_command, monkeypatch):
    _pretend(monkeypatch, "finished", "failed", "failed", "diverged")
    ran = rru_command("run", *BACH)
    assert ran.exit_code == 1
    assert "1 finished, 1 diverged, 2 failed" in ran.output
    assert "bach, GRU, seed 0; bach, LSTM, seed 0: so it is" in ran.output  # both, once


def test_runs_of_another_process_are_said_to_be_left_to_it(rru_command, monkeypatch):
    _pretend(monkeypatch, "busy", "finished", "finished", "busy")
    ran = rru_command("run", *BACH)
    assert ran.exit_code == 0
    assert "2 runs left to another process that trains them" in ran.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plan", "tabel1"), "did you mean 'table1'"),
        (("run", "table1", "--preset", "smok"), "did you mean 'smoke'"),
        (("plan", "table1", "--seeds", "x"), "such as 0,1,2 or 0-4; got 'x'"),
        (("run", "table1", "--cells", "rru,gruu"), "did you mean 'gru'"),
        (("run", *BACH, "--on", "moon"), "on must be one of here, ray; got 'moon'"),
        (("plan", "--preset", "tiny"), "preset must be one of"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_would_be_right(rru_command, arguments, said):
    ran = rru_command(*arguments)
    assert ran.exit_code == 1
    assert said in ran.output
    assert len(ran.output.splitlines()) == 1


def test_times_are_said_as_people_do():
    said = [duration(seconds) for seconds in (0.2, 45, 200, 9000, 400_000)]
    assert said == ["about 1 second", "about 45 seconds", "about 3.3 minutes", "about 2.5 hours", "about 4.6 days"]


@pytest.mark.slow
def test_ctrl_c_stops_all_workers_and_the_same_command_goes_on(tmp_path):
    """Ctrl-C reaches the whole group of processes, as in a terminal."""
    command = [sys.executable, "-m", "rru.cli", "run", *BACH, "--workers", "2", "--threads", "1"]
    options = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    options["env"] = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, start_new_session=True, **options) as first:
        for line in first.stdout:
            if "begins" in line:
                os.killpg(first.pid, signal.SIGINT)
                break
        said = first.stdout.read()
    assert first.returncode == 130
    assert "stopping after the current steps" in said
    assert "stopped; the same command goes on" in said
    assert "Traceback" not in said
    again = subprocess.run(command, check=True, **options)
    assert "4 of 4 runs to do" in again.stdout
    assert "4 finished" in again.stdout
