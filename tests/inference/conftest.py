"""Small trained models, made once per session."""

import pytest

from rru.inference import load
from rru.settings import presets
from rru.training import Run, train_config


def _short_run(folder, *changes):
    """Trains a small model on the embedded chorales. Returns its folder."""
    changes = ["budget=100k", "dropout=0.3", "lr=0.01", "model.output_size=32", *changes]
    train_config(presets.override(presets.load("bach", "rru", "demo"), changes), folder)
    return folder


@pytest.fixture(scope="session")
def chorales(tmp_path_factory):
    """The folder of a short run on the embedded chorales."""
    return _short_run(tmp_path_factory.mktemp("runs") / "chorales", "epochs=12", "output=independent")


@pytest.fixture(scope="session")
def joint(tmp_path_factory):
    """A model with a joint output, after a short run on the embedded chorales."""
    return load(_short_run(tmp_path_factory.mktemp("runs") / "joint", "epochs=20", "output=nade", "output_units=256"))


@pytest.fixture(scope="session")
def trained(chorales):
    return load(chorales)


@pytest.fixture(scope="session")
def untrained_run(tmp_path_factory):
    """Return a function that makes a run folder with untrained weights, without reading any data."""

    def make(task, cell="rru", vocabulary=None, changes=()):
        from tests.attacks.used import untrained

        folder = tmp_path_factory.mktemp("run") / task
        config = presets.override(presets.load(task, cell, "smoke"), changes)
        run = Run.create(folder, config)
        run.save_best(1, untrained(config, vocabulary).state_dict(), {"epoch": 1})
        if vocabulary is not None:
            vocabulary.save(folder / "vocabulary.json")
        return folder

    return make


@pytest.fixture(scope="session")
def models(tmp_path_factory, untrained_run):
    """Models of all kinds, with random weights, by name."""
    from tests.inference.small_models import make_models

    return make_models(tmp_path_factory.mktemp("models"), untrained_run)


@pytest.fixture(scope="session")
def engine_of_gcc(tmp_path_factory):
    """The C engine as GCC compiles it with the flags of an export."""
    from tests.inference.c_engine import compiled, compilers

    if not compilers():
        pytest.skip("there is no C compiler")
    return compiled(compilers()[0], tmp_path_factory.mktemp("engine"))
