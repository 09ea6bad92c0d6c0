"""After a run on series is scored, it is trained anew on all data; forecasts use those weights, scores never do."""

import json
import os
import shutil
import signal

import numpy as np
import pytest

import rru
from rru.data import from_csv
from rru.experiments.plans import PlannedRun
from rru.experiments.running import RunLost, RunReported, run_state, to_do, transfer, workers
from rru.experiments.running.attempt import attempt
from rru.settings import presets
from rru.training import Ended, Evaluated, Refitted, Run, RunError, evaluate, find_runs, run_folder, train_config
from rru.training.checkpoint import MODEL
from tests.training.victim import refit

DAYS = np.arange("2026-01-01", "2026-05-31", dtype="datetime64[D]")


@pytest.fixture(autouse=True, scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRU_CACHE_DIR", str(folder / "cache"))
        yield folder


@pytest.fixture(scope="module")
def config(place):
    draw = np.random.default_rng(0)
    rows = [f"{day},{10 + 3 * np.sin(number) + draw.normal():.3f}" for number, day in enumerate(DAYS)]
    (place / "load.csv").write_text("\n".join(["day,load", *rows]))
    own = from_csv(place / "load.csv", target="load", horizon=5)
    return presets.override(presets.load(own, "rru", "smoke"), ["epochs=4", "checkpoint_steps=1"])


@pytest.fixture(scope="module")
def events():
    return []


@pytest.fixture(scope="module")
def finished(config, place, events):
    """The folder of an undisturbed run."""
    train_config(config, place / "finished", watch=events.append)
    return place / "finished"


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copied")


def kept(folder):
    """Return the best weights of a run and those of its refit, by file."""
    files = [*folder.glob(f"best/*/{MODEL}"), *folder.glob(f"refit/best/*/{MODEL}")]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def test_it_trains_as_many_epochs_as_were_best(finished, events):
    best = Run(finished).result().best_epoch
    assert Run(finished / "refit").result().epochs == best
    assert [event for event in events if isinstance(event, Refitted)] == [
        Refitted(epoch, best) for epoch in range(1, best + 1)
    ]
    assert sum(isinstance(event, Evaluated) for event in events) == 4
    assert [isinstance(event, Ended) for event in events].index(True) == len(events) - 1
    assert events[-1].result.status == "finished"


def test_the_new_weights_are_of_all_data_with_the_trust_and_widths_found_before(finished):
    run = Run(finished)
    epoch = run.result().best_epoch
    before, after = run.best(epoch), Run(finished / "refit").best(epoch)
    assert {name for name in before if before[name].equal(after[name])} >= {"trust", "widening"}
    assert not before["start"].equal(after["start"])


def test_forecasts_use_the_new_weights_and_scores_the_old(finished):
    trained, run = rru.load(finished), Run(finished)
    new = Run(finished / "refit").best(run.result().best_epoch)
    assert all(value.equal(new[name]) for name, value in trained.model.state_dict().items())
    assert evaluate(finished, "test") == pytest.approx(run.result().test, rel=1e-6)
    assert trained.evaluate() == pytest.approx(run.result().test, rel=1e-6)
    assert trained.evaluate(split="valid") == pytest.approx(run.result().validation, rel=1e-6)


def kill(processes, config, folder, steps):
    """Train a run in another process, which is killed after so many steps of both trainings."""
    process = processes.Process(target=refit, args=(config, folder, steps))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (folder / "refit" / "result.json").exists()


@pytest.mark.parametrize("where", ["first", "last"])
def test_killed_it_goes_on_and_ends_with_the_same_weights(processes, config, finished, tmp_path, where):
    """In the midst of the first training, and of that on all data."""
    steps = Run(finished).result().steps
    kill(processes, config, tmp_path / "run", steps // 2 if where == "first" else steps + 2)
    assert (tmp_path / "run" / "result.json").exists() == (where == "last")
    train_config(config, tmp_path / "run")
    assert kept(tmp_path / "run") == kept(finished)
    assert len(kept(finished)) == 2


@pytest.fixture
def entry(config):
    """The run as that of a plan."""
    return PlannedRun("load", "rru", {}, config)


class TestInPlans:
    def test_killed_it_is_left_to_do_and_a_worker_ends_it(self, processes, entry, finished, tmp_path, monkeypatch):
        monkeypatch.setattr(workers, "_SPAWN", processes)
        folder = run_folder(entry.config, tmp_path)
        kill(processes, entry.config, folder, Run(finished).result().steps + 2)
        state = run_state(entry, tmp_path)
        assert (state.status, state.result) == ("stopped", Run(folder).result())
        (outcome,) = workers.run(to_do([entry], tmp_path), tmp_path, threads=1)
        assert outcome.status == "finished"
        assert kept(folder) == kept(finished)
        assert to_do([entry], tmp_path) == []

    def test_results_from_elsewhere_need_no_weights_of_all_data(self, entry, finished, tmp_path):
        folder = run_folder(entry.config, tmp_path / "elsewhere")
        shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("refit"))
        assert to_do([entry], tmp_path, [tmp_path / "elsewhere"]) == []
        assert to_do([entry], tmp_path / "elsewhere") == [entry]

    def test_while_another_process_trains_on_all_data_the_run_is_left_alone(self, entry, copied):
        (copied / "refit" / "result.json").unlink()
        with Run(copied).locked():
            assert attempt(entry, copied).status == "running"
            with pytest.raises(RunError, match=r"process \d+ is training this run"):
                train_config(entry.config, copied)
        assert not (copied / "error.txt").exists()

    def test_a_worker_that_is_killed_is_replaced(self, processes, entry, finished, tmp_path, monkeypatch):
        monkeypatch.setattr(workers, "_SPAWN", processes)
        folder, seen = run_folder(entry.config, tmp_path), []

        def watch(event):
            seen.append(event)
            refitted = isinstance(event, RunReported) and isinstance(event.event, Refitted)
            if refitted and not any(isinstance(each, RunLost) for each in seen) and Run(folder).is_locked:
                os.kill(int((folder / "lock").read_text()), signal.SIGKILL)

        assert [outcome.status for outcome in workers.run([entry], tmp_path, threads=1, watch=watch)] == ["finished"]
        assert kept(folder) == kept(finished)

    def test_one_that_diverged_on_all_data_has_ended(self, entry, copied):
        file = copied / "refit" / "result.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"status": "diverged"}))
        assert attempt(entry, copied, stop=lambda: False).status == "finished"

    def test_sent_to_another_node_it_goes_on_there(self, processes, entry, finished, tmp_path):
        here, there, back = (tmp_path / name for name in ("here", "there", "back"))
        kill(processes, entry.config, here, Run(finished).result().steps + 2)
        for source, place in ((here, there), (there, back)):
            Run.create(place, entry.config)
            files = transfer.contents(source)
            transfer.write(place, transfer.Changes(files, frozenset(files)))
            assert attempt(entry, place).status == "finished"
        assert kept(there) == kept(back) == kept(finished)


def test_killed_and_fitted_again_it_ends_with_the_same_weights(processes, config, finished, place, tmp_path):
    kill(processes, config, tmp_path / "run", Run(finished).result().steps + 2)
    options = {"target": "load", "horizon": 5, "preset": "smoke", "folder": tmp_path / "run", "progress": False}
    rru.fit(place / "load.csv", settings={"epochs": 4, "checkpoint_steps": 1}, **options)
    assert kept(tmp_path / "run") == kept(finished)


def test_stopped_in_the_refit_it_says_so_and_uses_the_scored_weights_until_it_goes_on(config, copied, finished):
    shutil.rmtree(copied / "refit")
    seen = []
    result = train_config(config, copied, watch=seen.append, stop=lambda: True)
    assert (result.status, result.reason) == ("stopped", "on request, in training anew on all data")
    assert seen[-1] == Ended(result)
    run = Run(copied)
    scored = run.best(run.result().best_epoch)
    assert all(value.equal(scored[name]) for name, value in rru.load(copied).model.state_dict().items())
    assert train_config(config, copied).status == "finished"
    assert kept(copied) == kept(finished)


def test_a_refit_that_diverged_is_not_used(copied):
    file = copied / "refit" / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"status": "diverged"}))
    run = Run(copied)
    scored = run.best(run.result().best_epoch)
    assert all(value.equal(scored[name]) for name, value in rru.load(copied).model.state_dict().items())


def test_an_ended_run_needs_no_data(config, copied, place):
    away = (place / "load.csv").rename(place / "away.csv")
    try:
        assert train_config(config, copied, stop=pytest.fail).status == "finished"
    finally:
        away.rename(place / "load.csv")


def test_the_refit_is_no_run_of_its_own(finished):
    assert [run.path for run in find_runs(finished.parent)] == [finished]


def test_an_export_is_not_scored_on_the_data_it_was_trained_on(finished, place, tmp_path):
    rru.load(finished).export(tmp_path / "model")
    exported = rru.load(tmp_path / "model")
    with pytest.raises(RunError, match=r"trained on all parts of their data; evaluate the run .* or on new data"):
        exported.evaluate()
    assert exported.evaluate(place / "load.csv")["mase"] > 0


def test_without_refit_there_is_none(config, tmp_path):
    train_config(config.changed({"task.refit": False, "schedule.epochs": 1}), tmp_path / "run")
    assert not (tmp_path / "run" / "refit").exists()
    run = Run(tmp_path / "run")
    assert rru.load(run.path).evaluate() == pytest.approx(run.result().test, rel=1e-6)


class TestTrainingOnEverything:
    """What is scored must not be trained on, so only the second training may use all data."""

    def test_it_cannot_be_asked_for(self, config, place):
        for change in ("everything=true", "task.everything=true"):
            with pytest.raises(ValueError, match=r"task.everything cannot be changed: scores would be of steps that"):
                presets.override(config, [change])
        with pytest.raises(ValueError, match=r"task.everything cannot be changed: .*`task.refit` trains on all parts"):
            rru.fit(place / "load.csv", target="load", horizon=5, settings={"everything": True}, progress=False)

    def test_a_config_that_has_it_is_not_trained(self, config, tmp_path):
        with pytest.raises(ValueError, match=r"task.everything must not be set: scores would be of steps"):
            train_config(config.changed({"task.everything": True}), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_the_second_training_is_neither_scored_nor_gone_on_with_by_itself(self, finished):
        with pytest.raises(ValueError, match=r"task.everything must not be set"):
            evaluate(finished / "refit", "test")
        with pytest.raises(ValueError, match=r"task.everything must not be set"):
            train_config(Run(finished / "refit").config, finished / "refit")
