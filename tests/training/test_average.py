"""With `optimiser.ema`, the average of the weights is what is validated and kept."""

import numpy as np
import pytest
import torch

from rru import tasks
from rru.data import from_csv
from rru.kinds import KINDS
from rru.tasks import ImageTask, LanguageTask, MusicTask, ReviewTask, WordTask
from rru.training import RAdam, train
from rru.training.folder import Run
from tests import own_files
from tests.tasks import small
from tests.training.toy import Toy, config, outcome, train_in

AVERAGED = config(epochs=2).changed({"optimiser.ema": 0.7})


class Recording(Toy):
    """Notes the weights that are trained, before each step, and those that are validated."""

    def __init__(self):
        super().__init__()
        self.trained, self.validated = [], []

    def _loss(self, model, batch, state):
        self.trained.append(model.head.weight.detach().clone())
        return super()._loss(model, batch, state)

    def _scores(self, model, split):
        self.validated.append(model.head.weight.detach().clone())
        return super()._scores(model, split)


def test_the_average_is_validated_kept_and_tested(tmp_path):
    task = Recording()
    result = train_in(tmp_path / "run", task, config=AVERAGED)
    average, averages = task.trained[0], []
    for step, weights in enumerate(task.trained[1:], start=1):
        average = torch.lerp(weights, average, min(0.7, step / (10 + step)))
        averages.append(average)
    torch.testing.assert_close(task.validated[1], averages[6])  # after an epoch of seven steps
    best = Run(tmp_path / "run").best(result.best_epoch)["head.weight"]
    assert best.equal(task.validated[result.best_epoch])
    assert task.validated[-1].equal(best)  # the test


def test_training_itself_does_not_change(tmp_path):
    plain, averaged = Recording(), Recording()
    train_in(tmp_path / "plain", plain, config=config(epochs=2))
    train_in(tmp_path / "averaged", averaged, config=AVERAGED)
    torch.testing.assert_close(plain.trained, averaged.trained, rtol=0, atol=0)


def test_stopped_after_each_step_it_ends_as_if_never_stopped(tmp_path):
    train_in(tmp_path / "whole", config=AVERAGED)
    while train_in(tmp_path / "parts", config=AVERAGED, stop=lambda: True).status == "stopped":
        pass
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def sequences(folder):
    table = own_files.gestures(folder / "moves.csv")
    return tasks.load("own", own=from_csv(table, label="kind", sequence="id", time="t"), context=12, batch_size=8)


def series(folder):
    (folder / "load.csv").write_text("\n".join(["load", *map(str, 10 + np.sin(np.arange(150)).round(3))]) + "\n")
    own = from_csv(folder / "load.csv", target="load", horizon=4)
    return tasks.load("own", own=own, context=12, batch_size=16, patch=3)


TASKS = {
    "music": lambda _: MusicTask.of("music", small.music(), context=10, batch_size=4),
    "words": lambda _: WordTask.of("words", small.text(), context=8, batch_size=25, stateful=False),
    "characters": lambda _: LanguageTask.of("chars", small.text(), context=8, batch_size=8, stateful=True),
    "texts": lambda _: ReviewTask.of("reviews", small.reviews(), context=20, batch_size=4),
    "images": lambda _: ImageTask.of("pmnist", small.images(), batch_size=5),
    "sequences": sequences,
    "series": series,
}


def copies(model):
    return [weight.detach().clone() for weight in model.parameters()]


@pytest.fixture
def train_kind(tmp_path, monkeypatch):
    """Trains a small model of a kind of data; gives task, model, result, and the weights after each step."""
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))

    def train_kind(kind, name, stop=lambda: False):
        task = TASKS[kind](tmp_path)
        model = small.model_for(task, "rru", 8000, dropout=0.2, double=False)
        optimiser, folder = RAdam(model.parameters(), 0.01, clip=1.5), tmp_path / name
        weights = [copies(model)]
        optimiser.register_step_post_hook(lambda *_: weights.append(copies(model)))
        run = Run(folder) if folder.exists() else Run.create(folder, AVERAGED)
        return task, model, train(task, model, optimiser, run, stop=stop), weights

    return train_kind


def test_every_kind_of_task_is_here():
    assert {KINDS[kind].task for kind in TASKS} == {kind.task for kind in KINDS.values()}


@pytest.mark.parametrize("kind", TASKS)
def test_of_every_kind_of_data_the_average_is_validated_and_tested(kind, train_kind):
    task, model, result, (average, *trained) = train_kind(kind, "run")
    for step, weights in enumerate(trained[: result.best_epoch * task.steps_per_epoch()], start=1):
        keep = min(0.7, step / (10 + step))
        average = [torch.lerp(new, old, keep) for new, old in zip(weights, average, strict=True)]
    assert result.steps == len(trained) == 2 * task.steps_per_epoch()
    torch.testing.assert_close(copies(model), average)
    task.calibrate(model)
    assert task.evaluate(model, "valid") == result.validation
    assert task.evaluate(model, "test") == result.test
    with torch.no_grad():
        for weight, last in zip(model.parameters(), trained[-1], strict=True):
            weight.copy_(last)
    assert task.evaluate(model, "test")["loss"] != result.test["loss"]


@pytest.mark.parametrize("kind", TASKS)
def test_of_every_kind_of_data_a_stopped_run_ends_as_if_never_stopped(kind, train_kind, tmp_path):
    train_kind(kind, "whole")
    while train_kind(kind, "parts", stop=lambda: True)[2].status == "stopped":
        pass
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
