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

from rru.experiments import presets, running, workers
from rru.experiments.estimate import Estimate, time_left
from rru.experiments.running import Lost, Told
from rru.training import Evaluated, Result, Run, RunError, Started, Stepped
from tests.experiments.chorales import entries, folder, outcomes, trained

RRU, GRU = range(2)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What comes of RRU and GRU when nothing happens to them."""
    return trained(entries(), tmp_path_factory.mktemp("expected"))


@pytest.fixture
def quick_workers(monkeypatch):
    """Workers that need not import torch each."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.victim", "rru.experiments.workers"])
    monkeypatch.setattr(workers, "_SPAWN", context)


class Killer:
    """Kills whoever trains a run, so often, when it tells of a kind of event."""

    def __init__(self, root, name, kind, times):
        self.root, self.name, self.kind, self.left = root, name, kind, times
        self.seen = []

    def __call__(self, happening):
        self.seen.append(happening)
        told = isinstance(happening, Told) and happening.entry.name == self.name
        if self.left and told and isinstance(happening.event, self.kind):
            self.left -= 1
            os.kill(int((folder(happening.entry, self.root) / "lock").read_text()), signal.SIGKILL)


@pytest.mark.usefixtures("quick_workers")
def test_a_killed_worker_costs_nothing(tmp_path, expected):
    """Its run goes on from the checkpoint, the other worker's is not touched, results are the same bit for bit."""
    those = entries()
    killer = Killer(tmp_path, those[RRU].name, Evaluated, 1)
    done = workers.run(those, tmp_path, workers=2, threads=1, watch=killer)
    assert Counter(outcome.status for outcome in done) == {"finished": 2}
    lost = [happening for happening in killer.seen if isinstance(happening, Lost)]
    assert [(one.entry.name, one.reason) for one in lost] == [(those[RRU].name, "its process was killed by SIGKILL")]
    again = [told.event for told in killer.seen if isinstance(told, Told) and told.entry == those[RRU]]
    assert [event.epoch for event in again if isinstance(event, Started)] == [0, 1]  # it went on after the first
    assert outcomes(those, tmp_path) == expected
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("quick_workers")
def test_a_run_whose_workers_are_killed_each_time_fails_and_the_others_go_on(tmp_path, expected):
    those = entries()
    killer = Killer(tmp_path, those[RRU].name, Started, 3)
    done = {outcome.entry.name: outcome for outcome in workers.run(those, tmp_path, threads=1, watch=killer)}
    assert done[those[RRU].name].status == "failed"
    assert done[those[RRU].name].message == "3 processes died that trained it, the last was killed by SIGKILL"
    assert running.standing(those[RRU], tmp_path).message == done[those[RRU].name].message
    assert done[those[GRU].name].status == "finished"
    assert [entry.name for entry in running.to_do(those, tmp_path)] == [those[RRU].name]
    workers.run(running.to_do(those, tmp_path), tmp_path, threads=1)
    assert outcomes(those, tmp_path) == expected


@pytest.mark.usefixtures("quick_workers")
def test_stopped_runs_go_on_and_those_not_begun_are_begun(tmp_path, expected):
    those, seen = entries(), []

    def steps():
        return any(isinstance(told, Told) and isinstance(told.event, Stepped) for told in seen)

    (stopped,) = workers.run(those, tmp_path, threads=1, watch=seen.append, stop=steps)
    assert (stopped.entry.name, stopped.status) == (those[RRU].name, "stopped")
    assert [running.standing(entry, tmp_path).state for entry in those] == ["unfinished", "missing"]
    workers.run(running.to_do(those, tmp_path), tmp_path, threads=1)
    assert outcomes(those, tmp_path) == expected


@pytest.mark.usefixtures("quick_workers")
def test_a_run_that_fails_is_recorded_and_the_others_go_on(tmp_path):
    those = entries()
    folder(those[RRU], tmp_path).parent.mkdir(parents=True)
    folder(those[RRU], tmp_path).write_text("in the way")
    done = workers.run(those, tmp_path, threads=1)
    assert [outcome.status for outcome in done] == ["failed", "finished"]
    assert "Not a directory" in done[0].message


def test_an_error_is_recorded_in_the_runs_folder_until_it_is_put_right(tmp_path):
    (entry,) = entries("rru")
    place = folder(entry, tmp_path)
    (place / "checkpoint" / "000001").mkdir(parents=True)
    failed = running.attempt(entry, place)
    assert failed.status == "failed"
    assert "no checkpoint here can be read" in failed.message
    how = running.standing(entry, tmp_path)
    assert (how.state, how.message) == ("failed", failed.message)
    assert "Traceback" in (place / running.ERROR).read_text()
    (place / "checkpoint" / "000001").rmdir()
    assert running.attempt(entry, place).status == "finished"
    assert running.standing(entry, tmp_path).state == "finished"
    assert not (place / running.ERROR).exists()


def test_a_run_that_another_process_trains_is_left_to_it(tmp_path):
    (entry,) = entries("rru")
    run = Run.create(folder(entry, tmp_path), entry.config)
    with run.locked():
        assert running.standing(entry, tmp_path).state == "running"
        assert running.attempt(entry, run.path).status == "busy"
    assert running.standing(entry, tmp_path).state == "unfinished"
    assert not (run.path / running.ERROR).exists()


def test_a_run_that_writes_checkpoints_more_often_than_the_plan_says_is_still_the_plans(tmp_path):
    (entry,) = entries("rru")
    often = presets.override(entry.config, ["checkpoint_steps=1", "log_steps=1"])
    Run.create(folder(entry, tmp_path), often)
    assert running.attempt(entry, folder(entry, tmp_path)).status == "finished"


def test_states_of_runs(tmp_path):
    (entry,) = entries("rru")
    place = folder(entry, tmp_path)
    assert running.standing(entry, tmp_path).state == "missing"
    trained([entry], tmp_path)
    how = running.standing(entry, tmp_path)
    assert (how.state, how.epoch) == ("finished", 2)
    assert how.score == json.loads((place / "result.json").read_bytes())["test"]["nll"]
    assert running.to_do([entry, entry], tmp_path) == []
    (place / "result.json").rename(place / "kept")
    assert (running.standing(entry, tmp_path).state, running.standing(entry, tmp_path).epoch) == ("unfinished", 2)
    assert running.to_do([entry, entry], tmp_path) == [entry]  # once
    (place / "result.json").write_text("{")
    assert running.standing(entry, tmp_path).state == "damaged"
    assert running.to_do([entry], tmp_path) == [entry]
    assert "result.json: cannot be read" in running.attempt(entry, place).message


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


def test_the_time_left_is_judged_by_runs_of_the_same_kind(tmp_path):
    those = entries("rru,gru", "0-3")  # RRU 0 to 3, GRU 0 to 3

    def stand():
        return [running.standing(entry, tmp_path) for entry in those]

    assert time_left(those, stand(), tmp_path) == Estimate(0.0, 0, 8)
    budget = those[0].config["model"]["budget"]
    _ended(those[0], tmp_path, epochs=2, seconds=6.0, parameters=budget // 2)
    _ended(those[1], tmp_path, epochs=4, seconds=12.0, parameters=budget // 2)
    left = time_left(those, stand(), tmp_path)
    assert (left.judged, left.unknown) == (2, 4)
    assert left.seconds == pytest.approx(2 * 3 * 6.0)  # of mean epochs, each with twice as many parameters
    run = Run.create(folder(those[2], tmp_path), those[2].config)
    run.append({"kind": "epoch", "epoch": 1})
    assert time_left(those, stand(), tmp_path).seconds == pytest.approx((2 + 3) * 6.0)


COORDINATOR = """
import sys
from pathlib import Path
from rru.experiments import workers
from tests.experiments.chorales import entries

def watch(happening):
    print(type(happening).__name__, type(getattr(happening, "event", None)).__name__, flush=True)

if __name__ == "__main__":
    workers.run(entries(), Path(sys.argv[1]), workers=2, threads=1, watch=watch)
"""


@pytest.mark.slow
def test_workers_whose_coordinator_is_killed_end_and_the_plan_goes_on(tmp_path, expected):
    those = entries()
    script = tmp_path / "coordinator.py"
    script.write_text(COORDINATOR)
    command = [sys.executable, str(script), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as coordinator:
        for line in coordinator.stdout:
            if line.split() == ["Told", "Evaluated"]:
                coordinator.kill()
                break
        coordinator.stdout.read()  # ends when the last worker has: they share it
    assert running.to_do(those, tmp_path)
    assert all(running.standing(entry, tmp_path).state != "running" for entry in those)
    workers.run(running.to_do(those, tmp_path), tmp_path, workers=2, threads=1)
    assert outcomes(those, tmp_path) == expected


def test_threads_are_divided_among_workers(monkeypatch):
    monkeypatch.setattr(workers.torch, "get_num_threads", lambda: 8)
    assert [workers.threads_each(count) for count in (1, 2, 3, 20)] == [8, 4, 2, 1]


def test_an_error_is_a_line_that_names_its_kind_unless_it_is_ours():
    assert running.error_text(RunError("a: is\nnot b")) == "a: is not b"
    assert running.error_text(KeyError("x")) == "KeyError: 'x'"
