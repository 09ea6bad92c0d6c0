"""With `optimiser.ema`, the average of the weights is what is validated and kept."""

import torch

from rru.training.folder import Run
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
