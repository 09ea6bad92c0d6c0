"""Searches: the paper's ranges, the same trials however they are run, and none lost or run twice."""

import json
import pickle
import random
import signal
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from rru.experiments.search import proposals
from rru.experiments.search.proposals import Proposals
from rru.experiments.search.study import Study, Trial, TrialStatus, Waiting
from rru.files import FileError, Lock
from rru.nn.sizing import BudgetError
from rru.report.importance import figure
from rru.settings import presets
from rru.settings.ranges import Range
from rru.training import Notice, Run, Stepped, find_runs, from_config
from tests.experiments.searcher import search, search_for_real, study, toy_runs


@pytest.fixture(autouse=True)
def _quick(monkeypatch, request):
    """Runs of milliseconds."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(from_config, "assemble", toy_runs)


def outcome(root):
    """What must not depend on how a study was run."""
    trials = study(root).trials()
    assert [trial.number for trial in trials] == list(range(len(trials)))
    return [(trial.settings, trial.state, trial.value) for trial in trials]


def test_fixed_settings_are_not_searched(tmp_path):
    left = Study("jsb", "gru", "cpu", changes=["lr=0.001", "model.budget=2M"], root=tmp_path)
    assert list(left.ranges) == ["model.dropout"]
    assert left.config.model.budget == 2_000_000
    with pytest.raises(ValueError, match="nothing is left to search"):
        Study("jsb", "gru", changes=["lr=0.001", "budget=2M", "dropout=0"], root=tmp_path)


def test_trials_of_equal_accuracy_are_in_order_of_their_loss(tmp_path, monkeypatch):
    found = Study("mnist", "gru", "smoke", root=tmp_path)
    losses, values = (0.5, 0.3, 0.4, 0.1), (90.0, 90.0, 90.0, 80.0)
    trials = [Trial(number, {}, TrialStatus.FINISHED, value) for number, value in enumerate(values)]
    monkeypatch.setattr(found, "trials", lambda: trials)
    monkeypatch.setattr(found, "result_of", lambda each: SimpleNamespace(validation={"loss": losses[each.number]}))
    assert [each.number for each in found.best()] == [1, 2, 0, 3]


class TestProposals:
    def made(self, folder, seed=0):
        return Proposals(
            folder, {"x": Range(0.0, 1.0), "n": Range(1, 50), "l": Range(1e-4, 1.0, log=True)}, seed, False
        )

    def value(self, trial):
        return (trial.params["x"] - 0.3) ** 2 + abs(trial.params["n"] - 7) / 50

    def searched(self, folder, seed=0):
        found = self.made(folder, seed)
        for _ in range(4):
            for trial in [each for each in found.extend(40) if not each.state.is_finished()]:
                found.tell(trial.number, self.value(trial))
        return found

    def test_proposals_depend_only_on_seed_and_earlier_generations(self, tmp_path):
        straight = self.searched(tmp_path / "straight")
        for count in range(1, 41):  # one more at a time, told of in a disorder, by a new process each time
            found = self.made(tmp_path / "other")
            found.extend(count)
            if count % 10 == 0:
                trials = [trial for trial in found.trials() if not trial.state.is_finished()]
                random.Random(count).shuffle(trials)
                for trial in trials:
                    found.tell(trial.number, self.value(trial))
        assert [trial.params for trial in found.trials()] == [trial.params for trial in straight.trials()]
        assert len(found.trials()) == 40
        other = self.made(tmp_path / "seed", seed=1)
        assert other.extend(3)[0].params != straight.trials()[0].params

    def test_proposals_beat_random_search(self, tmp_path):
        values = [self.value(trial) for trial in self.searched(tmp_path / "study").trials()]
        assert sum(values[20:]) < 0.7 * sum(values[:20])

    def test_failed_trials_are_ignored(self, tmp_path):
        found = self.made(tmp_path)
        for trial in found.extend(20):
            found.tell(trial.number, float("inf") if trial.number < 9 else 0.5)
        assert len(found.extend(20)) == 20

    def test_equal_trials_have_no_importances(self, tmp_path):
        found = self.made(tmp_path)
        for trial in found.extend(10):
            found.tell(trial.number, 0.5)
        assert found.importances() == {}

    def test_journal_has_no_pickle(self, tmp_path, monkeypatch):
        straight = self.searched(tmp_path / "study")
        monkeypatch.setattr(pickle, "loads", lambda *_: pytest.fail("a pickle was read"))
        assert [trial.params for trial in self.made(tmp_path / "study").trials()] == [
            t.params for t in straight.trials()
        ]
        for written in (tmp_path / "study" / "study.journal").read_text().splitlines():
            json.loads(written)

    def test_truncated_journal_line_is_repaired(self, tmp_path):
        before = [trial.params for trial in self.made(tmp_path).extend(5)]
        journal = tmp_path / "study.journal"
        journal.write_bytes(journal.read_bytes() + b'{"op_code": 4, "stu')
        found = self.made(tmp_path)
        assert [trial.params for trial in found.trials()] == before
        found.tell(0, 0.5)
        assert len(self.made(tmp_path).extend(10)) == 10

    def test_unreadable_journal_is_an_error_with_advice(self, tmp_path):
        (tmp_path / "study.journal").write_text('{"op_code": "x"}\nnonsense\n{}\n')
        with pytest.raises(FileError, match=r"study\.journal: cannot be read .*remove it"):
            self.made(tmp_path).trials()


class TestSearch:
    def test_has_the_asked_number_of_trials_each_an_ordinary_run(self, tmp_path):
        found = study(tmp_path)
        assert found.run(12)
        assert [trial.state for trial in found.trials()] == ["finished"] * 12
        runs = {run.path: run for run in find_runs(tmp_path)}
        assert len(runs) == 12
        for trial in found.trials():
            assert runs[found.run_of(trial)].result().best == trial.value
            assert runs[found.run_of(trial)].config == found.config_of(trial)
        assert found.best()[0].value == min(trial.value for trial in found.trials())
        assert sum(found.importances().values()) == pytest.approx(1)
        assert found.run(12, watch=lambda event: pytest.fail("there was nothing left to do"))

    def test_stopped_study_resumes_its_run(self, tmp_path):
        assert study(tmp_path / "whole").run(3)
        steps = 0

        def count(event):
            nonlocal steps
            steps += isinstance(event, Stepped)

        assert not study(tmp_path / "halves").run(3, watch=count, stop=lambda: steps >= 20)
        assert [trial.state for trial in study(tmp_path / "halves").trials()] == ["finished", "open", "open"]
        assert study(tmp_path / "halves").run(3, watch=count)
        assert steps == 3 * 14  # not one of them twice
        assert outcome(tmp_path / "halves") == outcome(tmp_path / "whole")

    def test_counts_a_diverged_run_as_worst(self, tmp_path, monkeypatch):
        class Diverging(type(toy_runs(presets.load("bach", "rru", "smoke")).task)):
            def _loss(self, model, batch, state):
                loss, state = super()._loss(model, batch, state)
                return loss * float("nan"), state

        def some(config, data_dir=None, device="cpu"):
            parts = toy_runs(config)
            bad = config.optimiser.lr < 1e-3
            return from_config.Assembled(Diverging() if bad else parts.task, parts.model, parts.optimiser)

        monkeypatch.setattr(from_config, "assemble", some)
        found = study(tmp_path)
        assert found.run(6)
        for trial in found.trials():
            assert trial.state == ("diverged" if trial.settings["optimiser.lr"] < 1e-3 else "finished")
        assert "diverged" in {trial.state for trial in found.trials()}
        assert all(trial.state == "finished" for trial in found.best())

    def test_goes_on_after_a_trial_whose_model_does_not_fit_its_budget(self, tmp_path, monkeypatch):
        def some(config, data_dir=None, device="cpu"):
            if config.optimiser.lr < 1e-3:
                raise BudgetError("budget must be at least 9, got 1")
            return toy_runs(config)

        monkeypatch.setattr(from_config, "assemble", some)
        found, events = study(tmp_path), []
        assert found.run(14, watch=events.append)
        for trial in found.trials():
            assert trial.state == ("too large" if trial.settings["optimiser.lr"] < 1e-3 else "finished")
        assert "too large" in {trial.state for trial in found.trials()}
        said = [event.message for event in events if isinstance(event, Notice)]
        assert said[0].endswith("does not fit its budget: budget must be at least 9, got 1")
        assert study(tmp_path).run(14, watch=pytest.fail)

    def test_prunes_when_asked_and_the_same_trials_if_runs_were_there_before(self, tmp_path, monkeypatch):
        monkeypatch.setattr(proposals, "GENERATION", 4)
        changes = ["schedule.epochs=3", "lr=0.002"]

        def made(root, prune):
            return study(tmp_path / root, changes=changes, prune=prune)

        for root, prune in (("there", False), ("there", True), ("new", True)):
            assert made(root, prune).run(8)
        assert {trial.state for trial in made("there", prune=False).trials()} == {"finished"}
        found = made("new", prune=True)
        assert made("there", prune=True).trials() == found.trials()
        states = [trial.state for trial in found.trials()]
        assert states[:4] == ["finished"] * 4
        assert "pruned" in states
        pruned = found.trials()[states.index("pruned")]
        assert Run(found.run_of(pruned)).status == "stopped"
        assert pruned not in found.best()

    def test_waits_for_a_trial_that_another_process_runs(self, tmp_path):
        asked = iter([False] * 5 + [True] * 9)
        assert not study(tmp_path).run(1, stop=lambda: next(asked))
        events = []
        with Lock(study(tmp_path).folder / "claims" / "0000"):  # as a process does that runs it
            assert not study(tmp_path).run(1, watch=events.append, stop=lambda: bool(events))
        assert [type(event) for event in events] == [Waiting]
        assert study(tmp_path).run(1)


def processes_of(context, root, count, moments):
    """A process for each of these moments, at which it is killed; 0: never. Return their exit codes."""
    workers = [context.Process(target=search, args=(root, count, each)) for each in moments]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [worker.exitcode for worker in workers]


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 12), *(pytest.param(seed, 20, marks=pytest.mark.slow) for seed in range(1, 6))]
)
def test_killed_and_shared_study_gives_the_same_trials(processes, tmp_path, seed, count):
    assert processes_of(processes, tmp_path / "calm", count, [0]) == [0]
    choice = random.Random(seed)
    for _ in range(3 * count // 10):
        moments = [choice.randrange(5_000, 50_000) for _ in range(2)]
        assert set(processes_of(processes, tmp_path / "storm", count, moments)) <= {0, -signal.SIGKILL}
    assert processes_of(processes, tmp_path / "storm", count, [0, 0]) == [0, 0]
    assert outcome(tmp_path / "storm") == outcome(tmp_path / "calm")
    assert len(outcome(tmp_path / "storm")) == len(find_runs(tmp_path / "storm")) == count
    assert study(tmp_path / "storm").best() == study(tmp_path / "calm").best()


@pytest.mark.slow
def test_twenty_smoke_trials_of_the_chorales_killed_at_random(processes, tmp_path):
    """By the clock, wherever that finds them."""
    calm = processes.Process(target=search_for_real, args=(tmp_path / "calm", 20))
    calm.start()
    calm.join()
    choice, kills = random.Random(0), 0
    for last in [False] * 8 + [True]:
        both = [processes.Process(target=search_for_real, args=(tmp_path / "storm", 20)) for _ in range(2)]
        for process in both:
            process.start()
        for process in both:
            process.join(None if last else choice.uniform(0.05, 0.8))
            if process.is_alive():
                process.kill()
                process.join()
                kills += 1
    assert kills >= 3
    assert outcome(tmp_path / "storm") == outcome(tmp_path / "calm")
    assert len(outcome(tmp_path / "storm")) == 20
    assert len(find_runs(tmp_path / "storm")) == 20
    assert study(tmp_path / "storm").best()[0] == study(tmp_path / "calm").best()[0]
    for run in find_runs(tmp_path / "storm"):
        epochs = [entry["epoch"] for entry in run.metrics() if entry["kind"] == "epoch"]
        assert epochs == list(range(run.result().epochs + 1))  # each trained once


def test_the_figure_of_what_mattered_is_a_picture():
    drawn = ElementTree.fromstring(figure({"optimiser.lr": 0.75, "model.<b>": 0.25}, "a & b"))
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["a & b", "optimiser.lr", "0.75", "model.<b>", "0.25"]
