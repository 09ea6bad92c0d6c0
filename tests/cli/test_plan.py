"""Plans by command, on the embedded chorales."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rru import data
from rru.cli import plan_view
from rru.cli.commands import app
from rru.experiments import plans
from rru.experiments.running import Outcome, RunState, run_state, workers
from rru.experiments.running.estimate import MeasuredSpeed, epoch_flop, time_left
from rru.training import Run, RunStatus
from rru.training import precision as precisions
from tests.cli.terminal import Terminal
from tests.experiments.chorales import folder, planned, trained

SIZES = ("smoke", "paper")
BACH = ("table1", "--preset", "smoke", "--tasks", "bach")


@pytest.fixture
def rru_command(tmp_path, monkeypatch):
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments])


def test_another_precision_is_another_run(rru_command, monkeypatch):
    monkeypatch.setattr(precisions, "multiplies_bfloat16", lambda device: True)
    one = (*BACH, "--cells", "lstm", "--set", "epochs=1")
    assert "1 finished" in rru_command("run", *one).output
    for precision, done in {"float32": 1, "auto": 1, "bf16": 0}.items():  # auto: the model is small
        assert f"{done} of 1 run done" in rru_command("run", *one, "--precision", precision, "--dry-run").output
    assert "1 finished" in rru_command("run", *one, "--precision", "bf16").output
    assert "1 of 1 run done" in rru_command("run", *one, "--set", "precision=bf16", "--dry-run").output
    assert "precision must be one of float32, bf16, auto" in rru_command("run", *one, "--precision", "half").output


def test_every_plan_is_a_line(rru_command):
    shown = rru_command("run").output.splitlines()
    assert len(shown) == 12
    assert shown[-1] == "Next: rru run table1 --preset cpu --dry-run"
    assert shown[0].split()[:3] == ["table1", "44", "runs"]


def test_a_plan_is_run_shown_and_not_run_again(rru_command, tmp_path):
    one = (*BACH, "--cells", "rru", "--seeds", "0-1")
    before = rru_command("run", "--dry-run", *one).output
    assert "0 of 2 runs done, 2 left." in before
    assert "a rough estimate: about" in before
    assert "for 2 runs one after another on one thread" in before
    ran = rru_command("run", *one, "--threads", "1")
    assert ran.exit_code == 0, ran.output
    assert "1 worker, 1 thread each" in ran.output
    assert "2 finished" in ran.output
    after = rru_command("run", "--dry-run", *one, "--seeds", "0-2").output
    for path in tmp_path.glob("runs/bach/rru/*/result.json"):
        assert f"finished: nll {json.loads(path.read_bytes())['test']['nll']:.4f} after 2 epochs" in after
    assert "2 of 3 runs done, 1 left." in after
    assert "estimated from runs that have ended: about" in after
    assert "rough" not in after
    again = rru_command("run", *one)
    assert (again.exit_code, "0 of 2 runs to do" in again.output, "starts" in again.output) == (0, True, False)


class TestResultsFromElsewhere:
    """Runs that were trained on another machine are not trained again."""

    TWO_CELLS = (*BACH, "--cells", "rru,gru")

    @pytest.fixture
    def elsewhere(self, tmp_path):
        rru, _ = planned("rru,gru")
        trained([rru], tmp_path / "elsewhere")
        return tmp_path / "elsewhere"

    def test_plan_and_run_count_them(self, rru_command, elsewhere, monkeypatch):
        _pretend(monkeypatch, "finished")
        missing = rru_command("run", "--dry-run", *self.TWO_CELLS).output
        assert "0 of 2 runs done" in missing
        shown = rru_command("run", "--dry-run", *self.TWO_CELLS, "--results", elsewhere).output
        assert f"runs in runs and {elsewhere}" in shown
        assert "finished: nll" in shown
        assert "1 of 2 runs done, 1 left." in shown
        ran = rru_command("run", *self.TWO_CELLS, "--results", elsewhere).output
        assert f"1 of 2 runs to do, in runs; results in {elsewhere} count too" in ran
        assert "bach, GRU, seed 0: finished" in ran
        assert "RRU" not in ran

    def test_the_variable_names_several_folders(self, rru_command, elsewhere, tmp_path, monkeypatch):
        (tmp_path / "empty").mkdir()
        monkeypatch.setenv("RRU_RESULTS", f"{tmp_path / 'empty'}{os.pathsep}{elsewhere}")
        assert "1 of 2 runs done" in rru_command("run", "--dry-run", *self.TWO_CELLS).output

    def test_a_checkout_counts_those_in_its_docs(self, rru_command, elsewhere, tmp_path):
        (tmp_path / "docs" / "results").mkdir(parents=True)
        elsewhere.rename(tmp_path / "docs" / "results" / "runs")
        shown = rru_command("run", "--dry-run", *self.TWO_CELLS).output
        assert "runs in runs and docs/results/runs" in shown
        assert "1 of 2 runs done" in shown
        (tmp_path / "runs").mkdir()
        assert "0 of 2 runs done" in rru_command("run", "--dry-run", *self.TWO_CELLS, "--results", "runs").output

    def test_only_ended_runs_count(self, rru_command, elsewhere):
        _, gru = planned("rru,gru")
        Run.create(folder(gru, elsewhere), gru.config).append({"kind": "epoch", "epoch": 1, "validation": {"nll": 9.5}})
        shown = rru_command("run", "--dry-run", *self.TWO_CELLS, "--results", elsewhere).output
        assert "missing" in shown
        assert "stopped" not in shown

    def test_a_folder_that_does_not_exist_is_an_error(self, rru_command):
        ran = rru_command("run", "--dry-run", *BACH, "--results", "nowhere")
        assert ran.exit_code == 2
        assert "nowhere" in ran.output


def test_states_are_shown(rru_command, tmp_path):
    rru, gru, lstm, mogrifier = planned("rru,gru,lstm,mogrifier")
    runs = tmp_path / "runs"
    trained([rru], runs)
    Run.create(folder(gru, runs), gru.config).append({"kind": "epoch", "epoch": 1, "validation": {"nll": 9.5}})
    folder(lstm, runs).mkdir(parents=True)
    (folder(lstm, runs) / "error.txt").write_text("the disk is full\n\nTraceback\n")
    with Run.create(folder(mogrifier, runs), mogrifier.config).locked():
        shown = rru_command("run", "--dry-run", *BACH).output
    for said in ("finished: nll", "stopped at epoch 1, best 9.5000", "failed at epoch 0", "running at epoch 0"):
        assert said in shown
    assert "bach, LSTM, seed 0: the disk is full" in shown


def test_large_plan_is_summarized_without_all(rru_command):
    summed = rru_command("run", "--dry-run", "robustness-nottingham").output
    assert len(summed.splitlines()) < 15
    assert [line.split()[-2:] for line in summed.splitlines() if "LSTM" in line] == [["100", "100"]] * 2
    assert rru_command("run", "--dry-run", "robustness-nottingham", "--all").output.count("missing") == 400


def test_summary_chooses_the_best_run_by_validation(rru_command, tmp_path):
    """The test's score shown is that run's, not the best of all tests."""
    (rru,) = planned("rru")
    trained([rru], tmp_path / "runs")
    result = json.loads((folder(rru, tmp_path / "runs") / "result.json").read_bytes())
    for seed, (best, test) in enumerate([(3.0, 1.0), (2.0, 4.0), (5.0, 3.0)], start=1):
        (one,) = planned("rru", str(seed))
        Run.create(folder(one, tmp_path / "runs"), one.config).write_result(
            {**result, "best": best, "test": {"nll": test}}
        )
    shown = rru_command("run", "--dry-run", *BACH, "--cells", "rru", "--seeds", "0-99").output
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


def test_runs_of_another_process_are_reported_as_skipped(rru_command, monkeypatch):
    _pretend(monkeypatch, "running", "finished", "finished", "running")
    ran = rru_command("run", *BACH)
    assert ran.exit_code == 0
    assert "2 runs skipped: another process is training them" in ran.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--dry-run", "tabel1"), "did you mean 'table1'"),
        (("run", "table1", "--preset", "smok"), "did you mean 'smoke'"),
        (("run", "--dry-run", "table1", "--seeds", "x"), "such as 0,1,2 or 0-4; got 'x'"),
        (("run", "table1", "--cells", "rru,gruu"), "did you mean 'gru'"),
        (("run", *BACH, "--on", "moon"), "on must be one of here, ray; got 'moon'"),
        (("run", "--dry-run", "--preset", "tiny"), "preset must be one of"),
        (("run", "--dry-run", "table1", "--by", "words"), "--by is only for your own data, not for the plan table1"),
        (("run", "table1", "--transpose", "5"), "--transpose is only for your own data, not for the plan table1"),
        (("run", "--dry-run", "compare", "--data", "x.txt", "--tasks", "jsb"), "--tasks is for the plans of the paper"),
        (("run", "--dry-run", "table1", "--watch", "--preset", "tiny"), "preset must be one of"),
        (("run", "table1", "--watch"), "--watch and --all need --dry-run"),
        (("run", "table1", "--set", "seed=1"), "--set cannot change schedule.seed, which the plan table1 decides"),
        (("run", "table1", "--preset", "smoke", "--set", "lrr=1"), "did you mean optimiser.lr"),
    ],
)
def test_mistakes_are_one_line_errors(rru_command, arguments, said):
    ran = rru_command(*arguments)
    assert ran.exit_code == 2
    assert said in ran.output
    assert len(ran.output.splitlines()) == 1


def test_watch_prints_changes_until_all_runs_end(rru_command, tmp_path, monkeypatch):
    (rru,) = planned("rru")
    runs = tmp_path / "runs"
    Run.create(folder(rru, runs), rru.config).append({"kind": "epoch", "epoch": 1, "validation": {"nll": 9.5}})
    waits = []

    def wait(seconds, stop):
        waits.append(seconds)
        trained([rru], runs)
        return stop()

    monkeypatch.setattr(plan_view, "stopped_within", wait)
    shown = rru_command("run", "--dry-run", *BACH, "--cells", "rru", "--watch", "--every", "3")
    assert shown.exit_code == 0, shown.output
    said = [line for line in shown.output.splitlines() if line.startswith("bach")]
    assert said[0] == "bach, RRU, seed 0: stopped at epoch 1, best 9.5000"
    assert re.fullmatch(r"bach, RRU, seed 0: finished: nll [\d.]+ after 2 epochs", said[1])
    assert waits == [3]
    assert "1 of 1 run done, 0 left." in shown.output


def test_watch_in_a_terminal_is_live_until_ctrl_c(tmp_path):
    (rru,) = planned("rru")
    Run.create(folder(rru, tmp_path / "runs"), rru.config).append(
        {"kind": "epoch", "epoch": 1, "validation": {"nll": 9.5}}
    )
    watching = Terminal("run", "--dry-run", *BACH, "--watch", "--every", "0.2", folder=tmp_path)
    watching.read_until("best 9.5000")
    Run(folder(rru, tmp_path / "runs")).append({"kind": "epoch", "epoch": 2, "validation": {"nll": 8.5}})
    watching.read_until("best 8.5000")
    watching.type("\x03")
    assert watching.end() == 0
    assert sum("best 8.5" in line for line in watching.screen) == 1
    assert any("1 stopped, 3 missing" in line for line in watching.screen)


def test_time_without_similar_runs_follows_from_flop(tmp_path):
    rru, gru = planned("rru,gru")
    trained([rru], tmp_path)
    states = [run_state(entry, tmp_path) for entry in (rru, gru)]
    (left,) = time_left([rru, gru], states, tmp_path, lambda entry: epoch_flop(entry) / 7)
    assert left.run is gru
    assert left.measured
    assert 14.4 <= left.seconds < 15  # seven seconds an epoch, the other cell took two epochs; starting, saving
    assert time_left([gru], states[1:], tmp_path, lambda entry: None)[0].seconds is None


def test_epochs_are_estimated_from_patience(tmp_path):
    those = plans.load("table1", "paper", tasks=["jsb", "enwik8"], cells=["rru"]).runs
    left = time_left(those, [RunState(RunStatus.MISSING)] * 2, tmp_path, lambda entry: 1.0)
    assert [one.epochs for one in left] == [7 * 7, 7 * 3]  # of at most 1000


def test_time_left_names_assumptions_and_longest_tasks(tmp_path):
    view = plan_view.PlanView(plans.load("table1", "paper"), tmp_path, lambda entry: 5e10)
    _, said = view.left(view.look())
    assert re.search(r"about [0-9.]+ years for 44 runs \(enwik8 [0-9.]+ days, text8 [0-9.]+ days, ptb-chars ", said)
    assert said.endswith("No run like them has ended yet, so this assumes 21 to 77 epochs.")


def test_flop_grow_with_parameters_and_steps_in_time():
    small, paper = (plans.load("table1", preset, tasks=["musedata"], cells=["rru"]).runs[0] for preset in SIZES)
    steps = data.data_set("musedata").statistics["steps"]
    budget = paper.config.model.budget
    assert epoch_flop(paper) == budget * (6 * steps[0] + 2 * steps[1])
    assert epoch_flop(small) < epoch_flop(paper) / 100
    every = [entry for preset in ("paper", "cpu") for entry in plans.load("table1", preset).runs]
    assert None not in map(epoch_flop, every)


def test_the_speed_of_every_kind_of_task_is_measured_once_each():
    speed = MeasuredSpeed()
    chosen = plans.load("table1", "smoke", tasks=["jsb", "ptb-words", "imdb", "mnist"], cells=["gru"]).runs
    before = [speed(entry) for entry in chosen]
    assert all(1e6 < each < 1e13 for each in before)
    assert [speed(entry) for entry in chosen] == before


@pytest.mark.slow
def test_ctrl_c_stops_workers_and_the_same_command_resumes(tmp_path):
    """Ctrl-C reaches the whole group of processes, as in a terminal."""
    command = [sys.executable, "-m", "rru", "run", *BACH, "--workers", "2", "--threads", "1"]
    options = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    options["env"] = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, start_new_session=True, **options) as first:
        for line in first.stdout:
            if "starts" in line:
                os.killpg(first.pid, signal.SIGINT)
                break
        said = first.stdout.read()
    assert first.returncode == 130
    assert "stopping after the current step" in said
    assert "stopped; run the same command again to resume" in said
    assert "Traceback" not in said
    again = subprocess.run(command, check=True, **options)
    assert "4 of 4 runs to do" in again.stdout
    assert "4 finished" in again.stdout


def test_set_changes_every_run_of_a_plan(rru_command, monkeypatch):
    configs = []
    monkeypatch.setattr(
        workers, "run", lambda left, root, **options: configs.extend(each.config for each in left) or []
    )
    ran = rru_command("run", *BACH, "--set", "epochs=1")
    assert ran.exit_code == 0, ran.output
    assert [config.schedule.epochs for config in configs] == [1] * 4


def test_plan_is_still_a_name_of_run_that_trains_nothing(rru_command):
    old, new = (rru_command(*words, *BACH).stdout for words in (["plan"], ["run", "--dry-run"]))
    assert old.splitlines()[:8] == new.splitlines()[:8]
    assert "4 left" in old
