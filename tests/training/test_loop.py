"""What the loop promises: the best epoch is kept, the test is done once, and every run ends with a result."""

import math
import signal
import threading

import pytest
import torch

from rru.tasks import Metric
from rru.training import RunError
from rru.training.checkpoint import Checkpoints
from rru.training.events import Ended, Evaluated, Notice, Started, Stepped
from rru.training.folder import Run
from rru.training.stop import stop_on_signals
from tests.timeouts import TIMEOUT
from tests.training.toy import Toy, config, outcome, train_in


class Scripted(Toy):
    """Validation says what it is told to; the test says which weights it was given."""

    def __init__(self, validation, higher_is_better=False):
        super().__init__()
        self.script = iter(validation)
        self.metric = Metric("error", "error", higher_is_better)
        self.weights = []

    def _scores(self, model, split):
        self.evaluated.append(split)
        self.weights.append(model.head.weight.detach().clone())
        return {"error": next(self.script) if split == "valid" else 0.5, "loss": 100.0}


class Breaking(Toy):
    """The loss is what `broken(step)` makes of it."""

    def __init__(self, broken):
        super().__init__()
        self.broken = broken
        self.steps = 0

    def _loss(self, model, batch, state):
        loss, state = super()._loss(model, batch, state)
        self.steps += 1
        return self.broken(loss, self.steps), state


class TestEarlyStopping:
    def test_ends_when_patience_is_over_and_tests_the_best_weights_once(self, tmp_path):
        task = Scripted([9.0, 5.0, 3.0, 4.0, 3.0, 3.5])
        result = train_in(tmp_path / "run", task, config=config(epochs=50, patience=3))
        assert (result.status, result.reason) == ("finished", "no better validation for 3 epochs")
        assert (result.best, result.best_epoch, result.epochs, result.steps) == (3.0, 2, 5, 35)
        assert result.test == {"error": 0.5, "loss": 100.0}
        assert task.evaluated == ["valid"] * 6 + ["test"]
        assert task.weights[-1].equal(task.weights[2])
        assert not task.weights[-1].equal(task.weights[5])

    @pytest.mark.parametrize("ema", [0.0, 0.9])  # the average is tested where the average is validated
    def test_testing_every_epoch_does_not_affect_selection(self, ema, tmp_path):
        once, every = (
            train_in(
                tmp_path / name, Toy(), config=config(epochs=3, test_every_epoch=each).changed({"optimiser.ema": ema})
            )
            for name, each in (("once", False), ("every", True))
        )
        assert (once.test, once.best_epoch) == (every.test, every.best_epoch)
        epochs = Run(tmp_path / "every").epochs([])
        assert [sorted(epoch.test) for epoch in epochs] == [[], *[sorted(every.test)] * 3]
        assert epochs[every.best_epoch].test == every.test
        assert not any(epoch.test for epoch in Run(tmp_path / "once").epochs([]))

    def test_a_higher_accuracy_is_better(self, tmp_path):
        task = Scripted([10.0, 50.0, 70.0, 60.0, 65.0], higher_is_better=True)
        result = train_in(tmp_path / "run", task, config=config(epochs=4, patience=7))
        assert (result.best, result.best_epoch, result.reason) == (70.0, 2, "all 4 epochs are done")

    def test_only_the_best_weights_stay_and_they_are_on_disk(self, tmp_path):
        task = Scripted([9.0, 5.0, 3.0, 4.0, 2.0])
        train_in(tmp_path / "run", task)
        run = Run(tmp_path / "run")
        assert run.best_epochs == [4]
        assert run.best(4)["head.weight"].equal(task.weights[-1])

    def test_an_ended_run_has_no_checkpoints_even_if_it_was_killed_before_they_were_removed(
        self, tmp_path, monkeypatch
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "clear", lambda self: None)
            train_in(tmp_path / "run")
        assert list((tmp_path / "run" / "checkpoint").iterdir()) != []
        train_in(tmp_path / "run")
        assert list((tmp_path / "run" / "checkpoint").iterdir()) == []


class TestDivergence:
    def test_non_finite_loss_diverges(self, tmp_path):
        value = math.inf
        task = Breaking(lambda loss, step: loss * value if step == 17 else loss)
        result = train_in(tmp_path / "run", task)
        assert (result.status, result.reason) == ("diverged", f"the training loss became {value} at step 17")
        assert (result.epochs, result.steps, result.best_epoch) == (2, 16, 2)
        assert Run(tmp_path / "run").status == "diverged"
        assert Run(tmp_path / "run").result().test["error"] > 0

    def test_divergence_in_the_first_epoch_has_no_best_and_no_test(self, tmp_path):
        task = Breaking(lambda loss, step: loss * math.nan)
        result = train_in(tmp_path / "run", task)
        assert (result.status, result.best, result.best_epoch, result.test) == ("diverged", None, 0, {})
        assert task.evaluated == ["valid"]

    def test_epoch_worse_than_the_untrained_model_diverges(self, tmp_path):
        result = train_in(tmp_path / "run", Breaking(lambda loss, step: loss * (1 if step <= 7 else 1000)))
        assert (result.status, result.epochs) == ("diverged", 2)
        assert "throughout epoch 2, above the untrained model's" in result.reason

    def test_loss_raised_by_dropout_does_not_diverge(self, tmp_path):
        result = train_in(tmp_path / "run", Breaking(lambda loss, step: loss * 3))
        assert result.status == "finished"
        assert result.untrained_loss > Run(tmp_path / "run").metrics()[0]["validation"]["loss"]

    def test_good_untrained_model_does_not_diverge(self, tmp_path):
        task = Breaking(lambda loss, step: loss * (1 if step <= 7 else 1000))
        task.starts_well = True
        assert train_in(tmp_path / "run", task).status == "finished"

    def test_single_bad_step_does_not_diverge(self, tmp_path):
        result = train_in(tmp_path / "run", Breaking(lambda loss, step: loss * (1.3 if step == 9 else 1)))
        assert result.status == "finished"

    def test_non_finite_validation_diverges(self, tmp_path):
        result = train_in(tmp_path / "run", Scripted([9.0, 5.0, math.nan]))
        assert (result.status, result.best, result.best_epoch) == ("diverged", 5.0, 1)
        assert result.reason == "validation after epoch 2 gave nan"

    def test_stays_diverged_when_resumed(self, tmp_path):
        first = train_in(tmp_path / "run", Breaking(lambda loss, step: loss * math.nan))
        task = Toy()
        assert train_in(tmp_path / "run", task) == first
        assert task.evaluated == []


class TestStopping:
    @pytest.mark.parametrize("step", [1, 7, 26])
    def test_stopped_after_any_step_resumes_identically(self, step, uninterrupted, tmp_path):
        asked = iter([False] * (step - 1) + [True])
        stopped = train_in(tmp_path / "run", stop=lambda: next(asked))
        assert (stopped.status, stopped.steps) == ("stopped", step)
        assert Run(tmp_path / "run").status == "stopped"
        assert Run(tmp_path / "run").result() is None
        assert train_in(tmp_path / "run").status == "finished"
        assert outcome(tmp_path / "run") == uninterrupted

    @pytest.mark.parametrize(
        "build",
        [
            lambda model: torch.optim.AdamW(model.parameters(), 0.01, amsgrad=True),
            lambda model: torch.optim.RAdam(model.parameters(), 0.01, foreach=True),
            lambda model: torch.optim.SGD(model.parameters(), 0.01, momentum=0.9),
        ],
        ids=["AdamW", "RAdam", "SGD"],
    )
    def test_stopped_after_every_step_resumes_with_any_optimiser(self, build, tmp_path):
        train_in(tmp_path / "whole", build=build, config=config(epochs=2))
        while train_in(tmp_path / "run", build=build, config=config(epochs=2), stop=lambda: True).status == "stopped":
            pass
        assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ctrl_c_stops_after_the_step(self, number, tmp_path):
        def interrupt(event):
            if isinstance(event, Stepped) and event.step == 5:
                signal.raise_signal(number)

        with stop_on_signals() as stop:
            result = train_in(tmp_path / "run", watch=interrupt, stop=stop)
        assert (result.status, result.steps) == ("stopped", 5)

    def test_ctrl_c_is_acknowledged_at_once(self):
        told = threading.Event()
        with stop_on_signals(told.set):
            signal.raise_signal(signal.SIGINT)
            assert told.wait(TIMEOUT)

    def test_a_second_ctrl_c_does_not_wait(self):
        with stop_on_signals() as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    def test_checkpoint_interval_does_not_change_the_result(self, uninterrupted, tmp_path):
        train_in(tmp_path / "run", config=config(checkpoint_steps=0))
        assert outcome(tmp_path / "run") == uninterrupted


class TestCheckpointsInsideAnEpoch:
    @pytest.mark.parametrize(
        ("schedule", "last"),
        [
            ({"checkpoint_steps": 3, "checkpoint_seconds": 0}, 9),
            ({"checkpoint_steps": 0, "checkpoint_seconds": 0}, 7),
            ({"checkpoint_steps": 0, "checkpoint_seconds": 1e-9}, 10),
        ],
    )
    def test_checkpoints_are_written_as_often_as_asked(self, schedule, last, uninterrupted, tmp_path):
        def fail(event):
            if isinstance(event, Stepped) and event.step == 11:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            train_in(tmp_path / "run", watch=fail, config=config(**schedule))
        assert Run(tmp_path / "run").checkpoints.load()[0].state["progress"]["step"] == last
        train_in(tmp_path / "run")
        assert outcome(tmp_path / "run") == uninterrupted


def test_edited_config_is_refused_until_restored(uninterrupted, tmp_path):
    train_in(tmp_path / "run", stop=lambda: True)
    file = tmp_path / "run" / "config.toml"
    text = file.read_text()
    assert "epochs = 4" in text
    file.write_text(text.replace("epochs = 4", "epochs = 5"))
    with pytest.raises(
        RunError, match=r"changed since this run started .schedule.epochs is 5, not 4.; undo the change"
    ):
        train_in(tmp_path / "run")
    file.write_text(text)
    train_in(tmp_path / "run")
    assert outcome(tmp_path / "run") == uninterrupted


def test_changed_thread_count_is_reported(tmp_path):
    train_in(tmp_path / "run", stop=lambda: True)
    torch.set_num_threads(2)
    events = []
    train_in(tmp_path / "run", watch=events.append, stop=lambda: True)
    assert [event.message for event in events if isinstance(event, Notice)] == [
        "resuming with 2 threads instead of 1: the result may differ, at first in the last digits"
    ]
    assert Run(tmp_path / "run").threads() == [1, 2]


class TestWatching:
    def test_events_come_in_order(self, tmp_path):
        events = []
        result = train_in(tmp_path / "run", watch=events.append)
        assert [type(event) for event in events] == [Started, *([Stepped] * 7 + [Evaluated]) * 4, Ended]
        assert events[-1].result == result
        assert [event.index for event in events[1:8]] == [1, 2, 3, 4, 5, 6, 7]

    def test_metrics_have_lines_for_epochs_and_steps(self, tmp_path):
        result = train_in(tmp_path / "run")
        lines = Run(tmp_path / "run").metrics()
        epochs = [line for line in lines if line["kind"] == "epoch"]
        assert [line["epoch"] for line in epochs] == [0, 1, 2, 3, 4]
        assert [line["step"] for line in lines if line["kind"] == "steps"] == [4, 8, 12, 16, 20, 24, 28]
        assert min(line["validation"]["error"] for line in epochs[1:]) == result.best
        assert epochs[0]["validation"]["loss"] <= result.untrained_loss

    def test_time_in_the_model_is_reported_separately(self, tmp_path):
        seconds = train_in(tmp_path / "run").seconds
        assert set(seconds) == {"total", "data", "model", "optimiser", "evaluation", "saving"}
        assert sum(seconds.values()) - seconds["total"] <= seconds["total"]


class Drawing(Toy):
    def model(self):
        model = super().model()
        torch.rand(7)
        return model


class TestSeed:
    def test_seed_decides_order_and_dropout(self, uninterrupted, tmp_path):
        train_in(tmp_path / "same", Drawing())
        assert outcome(tmp_path / "same") == uninterrupted
        train_in(tmp_path / "other", config=config(seed=2))
        assert outcome(tmp_path / "other") != uninterrupted

    def test_global_generator_is_restored(self, tmp_path):
        task = Toy()
        model = task.model()
        before = torch.get_rng_state()
        task.model = lambda: model
        train_in(tmp_path / "run", task)
        assert torch.get_rng_state().equal(before)
