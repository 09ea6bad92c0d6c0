"""Small trained models, made once."""

import pytest
import torch

from rru.experiments import execute, presets
from rru.generate import load
from rru.training import Run


@pytest.fixture(scope="session")
def chorales(tmp_path_factory):
    """The folder of a run that has learned the embedded chorales a little."""
    folder = tmp_path_factory.mktemp("runs") / "chorales"
    changes = ["budget=100k", "epochs=12", "dropout=0.3", "lr=0.01", "model.output_size=32"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for so small a model a second thread only waits
    execute.start(presets.override(presets.load("bach", "rru", "demo"), changes), folder)
    torch.set_num_threads(threads)
    return folder


@pytest.fixture(scope="session")
def trained(chorales):
    return load(chorales)


@pytest.fixture(scope="session")
def untrained_run(tmp_path_factory):
    """Makes the folder of a run with weights but no training, of a task with tokens so many; its data are not read."""

    def make(task, cell="rru", vocabulary=None, changes=()):
        from rru import tasks

        folder = tmp_path_factory.mktemp("run") / task
        config = presets.override(presets.load(task, cell, "smoke"), changes)
        run = Run.create(folder, config)
        of_model = dict(config["model"])
        name, budget = of_model.pop("cell"), of_model.pop("budget")
        tokens = None if vocabulary is None else len(vocabulary)
        stateful = config["task"].get("stateful", False)
        model = tasks.model(task, name, of_model, budget, tokens=tokens, stateful=stateful)
        run.save_best(1, model.state_dict(), {"epoch": 1})
        if vocabulary is not None:
            vocabulary.save(folder / "vocabulary.json")
        return folder

    return make
