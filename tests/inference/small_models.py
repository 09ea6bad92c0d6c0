"""Small models of every kind, with random weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rru import data, inference
from rru.data.vocabulary import Vocabulary
from tests import own_files
from tests.attacks.used import untrained_run as own_run

TINY = ["model.budget=20k"]
WORDS = Vocabulary.of(["it", "was", "the", "best", "great", "really"], "words")
LETTERS = Vocabulary.of([*"abcdefghijklmnopqrstuvwxyz_"], "characters")


def energy(path, grows=False):
    """Write a series of days with a weekly pattern and a column beside it."""
    days = np.arange("2026-01-01", "2026-05-01", dtype="datetime64[D]")
    values = [(5 + day % 7 + day / 100) * (1.03**day if grows else 1) for day in range(len(days))]
    rows = [f"{day},{value},{number % 5}" for number, (day, value) in enumerate(zip(days, values, strict=True))]
    path.write_text("\n".join(["day,load,price", *rows]))
    return path


def owned(folder):
    """Return the own data of each model and the settings that it needs."""
    series = {"target": "load", "horizon": 4}
    return {
        "characters": (data.from_text(own_files.text(folder / "letters.txt", 100)), []),
        "words": (data.from_text(own_files.text(folder / "novel.txt", 100), by="words"), []),
        "bytes": (data.from_text(own_files.text(folder / "bytes.txt", 100), by="bytes"), []),
        "texts": (data.from_csv(own_files.reviews(folder / "reviews.csv"), text="body", label="stars"), []),
        "sequences": (
            data.from_csv(own_files.gestures(folder / "waves.csv"), label="kind", sequence="id", time="t"),
            [],
        ),
        "series": (data.from_csv(energy(folder / "energy.csv"), **series), ["task.context=16", "task.patch=4"]),
        "inputs": (
            data.from_csv(energy(folder / "grows.csv", grows=True), columns="price", calendar=True, **series),
            ["task.context=9", "task.patch=3"],
        ),
    }


CATALOGUE = {
    "music": ("bach", None, ["output=independent"]),
    "nade": ("bach", None, ["output=nade", "output_units=8"]),
    "chain": ("bach", None, ["output=chain"]),
    "tied": ("bach", None, ["output=tied", "bar=5"]),
    "mnist": ("mnist", None, []),
    "pmnist": ("pmnist", None, []),
    "reviews": ("imdb", WORDS, []),
    "tokens": ("ptb-words", WORDS, []),
    "letters": ("ptb-chars", LETTERS, []),
}


def make_models(folder, untrained_run, only=None):
    """Return models of all kinds, or those in `only`, by name; `untrained_run` is the fixture."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRU_CACHE_DIR", str(folder / "cache"))
        runs = {
            name: own_run(folder / name, own, TINY + more)
            for name, (own, more) in owned(folder).items()
            if only is None or name in only
        }
    for name, (task, vocabulary, changes) in CATALOGUE.items():
        if only is None or name in only:
            runs[name] = untrained_run(task, "rru", vocabulary, [*TINY, *changes])
    models = {name: inference.load(run) for name, run in runs.items()}
    for trained in models.values():
        torch.manual_seed(7)  # each has its weights whatever others are made; with these, few keys sound
        for name, parameter in trained.model.named_parameters():
            if "head" in name or name == "change":
                torch.nn.init.normal_(parameter, std=0.3)
    return models


def of_own_class(trained):
    """Return a trained model whose class is a user's own, which the C engine does not know."""
    own = object.__new__(type("OwnModel", (type(trained.model),), {}))
    own.__dict__ = trained.model.__dict__
    return replace(trained, model=own)
