"""Running plans: what is to do, workers that are killed, stopped and left alone, and the same results in the end."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import asdict

import pytest

from rru.experiments import running
from rru.experiments.running import RunLost, RunReported, workers
from rru.experiments.running.attempt import attempt, error_text
from rru.experiments.running.estimate import time_left
from rru.settings import presets
from rru.training import Evaluated, Result, Run, RunError, Started, Stepped
from rru.training.run_files import ERROR
from tests.experiments.chorales import folder, outcomes, planned, trained

RRU, GRU = range(2)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What comes of RRU and GRU when nothing happens to them."""
    return trained(planned(), tmp_path_factory.mktemp("expected"))


@pytest.fixture
def quick_workers(processes, monkeypatch):
    """Workers that need not import torch each."""
    monkeypatch.setattr(workers, "_SPAWN", processes)


class Killer:
    """Kill whoever trains a run, so often, when it tells of a kind of event."""

    def __init__(self, root, name, kind, times):
        self.root, self.name, self.kind, self.left = root, name, kind, times
        self.seen = []

    def __call__(self, event):
        self.seen.append(event)
        told = isinstance(event, RunReported) and event.run.name == self.name
        if self.left and told and isinstance(event.event, self.kind):
            self.left -= 1
            os.kill(int((folder(event.run, self.root) / "lock").read_text()), signal.SIGKILL)


@pytest.mark.usefixtures("quick_workers")
def test_killed_worker_loses_nothing(tmp_path, expected):
    """Its run goes on from the checkpoint, the other worker's is not touched, results are the same bit for bit."""
    those = planned()
    killer = Killer(tmp_path, those[RRU].name, Evaluated, 1)
    done = workers.run(those, tmp_path, workers=2, threads=1, watch=killer)
    assert Counter(outcome.status for outcome in done) == {"finished": 2}
    lost = [event for event in killer.seen if isinstance(event, RunLost)]
    assert [(one.run.name, one.reason) for one in lost] == [(those[RRU].name, "its process was killed by SIGKILL")]
    again = [told.event for told in killer.seen if isinstance(told, RunReported) and told.run == those[RRU]]
    assert [event.epoch for event in again if isinstance(event, Started)] == [0, 1]  # it went on after the first
    assert outcomes(those, tmp_path) == expected
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("quick_workers")
def test_run_that_kills_its_workers_fails_and_others_continue(tmp_path, expected):
    those = planned()
    killer = Killer(tmp_path, those[RRU].name, Started, 3)
    done = {outcome.run.name: outcome for outcome in workers.run(those, tmp_path, threads=1, watch=killer)}
    assert done[those[RRU].name].status == "failed"
    assert done[those[RRU].name].message == "3 processes died while training it; the last one was killed by SIGKILL"
    assert running.run_state(those[RRU], tmp_path).message == done[those[RRU].name].message
    assert done[those[GRU].name].status == "finished"
    assert [entry.name for entry in running.to_do(those, tmp_path)] == [those[RRU].name]
    workers.run(running.to_do(those, tmp_path), tmp_path, threads=1)
    assert outcomes(those, tmp_path) == expected


@pytest.mark.usefixtures("quick_workers")
def test_stopped_runs_resume_and_missing_ones_start(tmp_path, expected):
    those, seen = planned(), []

    def steps():
        return any(isinstance(told, RunReported) and isinstance(told.event, Stepped) for told in seen)

    (stopped,) = workers.run(those, tmp_path, threads=1, watch=seen.append, stop=steps)
    assert (stopped.run.name, stopped.status) == (those[RRU].name, "stopped")
    assert [running.run_state(entry, tmp_path).status for entry in those] == ["stopped", "missing"]
    workers.run(running.to_do(those, tmp_path), tmp_path, threads=1)
    assert outcomes(those, tmp_path) == expected


@pytest.mark.usefixtures("quick_workers")
def test_failed_run_is_recorded_and_others_continue(tmp_path):
    those = planned()
    folder(those[RRU], tmp_path).parent.mkdir(parents=True)
    folder(those[RRU], tmp_path).write_text("in the way")
    done = workers.run(those, tmp_path, threads=1)
    assert [outcome.status for outcome in done] == ["failed", "finished"]
    assert "could not be written (File exists)" in done[0].message


def test_error_is_recorded_until_the_run_succeeds(tmp_path):
    (entry,) = planned("rru")
    place = folder(entry, tmp_path)
    (place / "checkpoint" / "000001").mkdir(parents=True)
    failed = attempt(entry, place)
    assert failed.status == "failed"
    assert "no readable checkpoint" in failed.message
    state = running.run_state(entry, tmp_path)
    assert (state.status, state.message) == ("failed", failed.message)
    assert "Traceback" in (place / ERROR).read_text()
    (place / "checkpoint" / "000001").rmdir()
    assert attempt(entry, place).status == "finished"
    assert running.run_state(entry, tmp_path).status == "finished"
    assert not (place / ERROR).exists()


def test_run_of_another_process_is_skipped(tmp_path):
    (entry,) = planned("rru")
    run = Run.create(folder(entry, tmp_path), entry.config)
    with run.locked():
        assert running.run_state(entry, tmp_path).status == "running"
        assert attempt(entry, run.path).status == "running"
    assert running.run_state(entry, tmp_path).status == "stopped"
    assert not (run.path / ERROR).exists()


def test_checkpoint_interval_does_not_change_the_planned_run(tmp_path):
    (entry,) = planned("rru")
    often = presets.override(entry.config, ["checkpoint_steps=1", "log_steps=1"])
    Run.create(folder(entry, tmp_path), often)
    assert attempt(entry, folder(entry, tmp_path)).status == "finished"


def test_states_of_runs(tmp_path):
    (entry,) = planned("rru")
    place = folder(entry, tmp_path)
    assert running.run_state(entry, tmp_path).status == "missing"
    trained([entry], tmp_path)
    state = running.run_state(entry, tmp_path)
    assert (state.status, state.epoch) == ("finished", 2)
    assert state.score == json.loads((place / "result.json").read_bytes())["test"]["nll"]
    assert running.to_do([entry, entry], tmp_path) == []
    (place / "result.json").rename(place / "kept")
    assert (running.run_state(entry, tmp_path).status, running.run_state(entry, tmp_path).epoch) == ("stopped", 2)
    assert running.to_do([entry, entry], tmp_path) == [entry]  # once
    (place / "result.json").write_text("{")
    assert running.run_state(entry, tmp_path).status == "damaged"
    assert running.to_do([entry], tmp_path) == [entry]
    assert "result.json: cannot be read" in attempt(entry, place).message


def _ended(entry, root, *, epochs, seconds, parameters):
    run = Run.create(folder(entry, root), entry.config)
    numbers = {"best": 1.0, "best_epoch": 1, "validation": {"nll": 1.0}, "test": {"nll": 1.0}, "untrained_loss": 2.0}
    result = Result(
        status="finished",
        reason="",
        metric="nll",
        higher_is_better=False,
        epochs=epochs,
        steps=1,
        tokens=1,
        parameters=parameters,
        seconds={"total": seconds},
        **numbers,
    )
    run.write_result(asdict(result))


def test_time_left_follows_similar_runs(tmp_path):
    those = planned("rru,gru", "0-3")  # RRU 0 to 3, GRU 0 to 3

    def stand():
        return [running.run_state(entry, tmp_path) for entry in those]

    def no_speed(entry):
        return None

    def by_runs():
        return [one.seconds for one in time_left(those, stand(), tmp_path, no_speed) if not one.measured]

    assert [one.seconds for one in time_left(those, stand(), tmp_path, no_speed)] == [None] * 8
    budget = those[0].config.model.budget
    _ended(those[0], tmp_path, epochs=2, seconds=6.0, parameters=budget // 2)
    _ended(those[1], tmp_path, epochs=4, seconds=12.0, parameters=budget // 2)
    assert by_runs() == pytest.approx([3 * 6.0] * 2)  # mean epochs, each with twice as many parameters
    run = Run.create(folder(those[2], tmp_path), those[2].config)
    run.append({"kind": "epoch", "epoch": 1})
    assert by_runs() == pytest.approx([2 * 6.0, 3 * 6.0])


COORDINATOR = """
import sys
from pathlib import Path
from rru.experiments.running import workers
from tests.experiments.chorales import planned

def watch(event):
    print(type(event).__name__, type(getattr(event, "event", None)).__name__, flush=True)

if __name__ == "__main__":
    workers.run(planned(), Path(sys.argv[1]), workers=2, threads=1, watch=watch)
"""


@pytest.mark.slow
def test_workers_end_with_their_coordinator_and_the_plan_resumes(tmp_path, expected):
    those = planned()
    script = tmp_path / "coordinator.py"
    script.write_text(COORDINATOR)
    command = [sys.executable, str(script), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as coordinator:
        for line in coordinator.stdout:
            if line.split() == ["RunReported", "Evaluated"]:
                coordinator.kill()
                break
        coordinator.stdout.read()  # ends when the last worker has: they share it
    assert running.to_do(those, tmp_path)
    assert all(running.run_state(entry, tmp_path).status != "running" for entry in those)
    workers.run(running.to_do(those, tmp_path), tmp_path, workers=2, threads=1)
    assert outcomes(those, tmp_path) == expected


def test_threads_are_divided_among_workers(monkeypatch):
    monkeypatch.setattr(workers.torch, "get_num_threads", lambda: 8)
    assert [workers.threads_each(count) for count in (1, 2, 3, 20)] == [8, 4, 2, 1]


def test_an_error_is_a_line_that_names_its_kind_unless_it_is_ours():
    assert error_text(RunError("a: is\nnot b")) == "a: is not b"
    assert error_text(KeyError("x")) == "KeyError: 'x'"
