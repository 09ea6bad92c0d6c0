"""`evaluate` gives the scores of training on the same data, and takes new data in every form."""

import csv

import numpy as np
import pytest

import rru
from rru.data import DataError
from tests import own_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("evaluating")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRU_CACHE_DIR", str(path / "cache"))
        yield path


def fitted(folder, name, task, **reading):
    """A model trained for a moment, all of whose validation and test data is scored."""
    settings = {"epochs": 1, "evaluation_limit": None}
    return rru.fit(task, preset="smoke", settings=settings, folder=folder / "runs" / name, **reading)


def test_text_from_a_file_or_a_string(folder):
    own_files.text(folder / "novel.txt")
    test = own_files.text(folder / "other.txt", 60, seed=1)
    for by in ("characters", "words", "bytes"):
        trained = fitted(folder, by, folder / "novel.txt", by=by, valid=test, test=test)
        assert trained.evaluate() == pytest.approx(trained.result.test)
        assert trained.evaluate(split="train")["loss"] != trained.evaluate()["loss"]
        assert trained.evaluate(test) == trained.evaluate(str(test)) == trained.evaluate()
        assert trained.evaluate(test.read_text()) == trained.evaluate()
    with pytest.raises(ValueError, match="must have at least two bytes, got 1"):
        trained.evaluate("a")
    with pytest.raises(DataError, match=r"another\.txt: does not exist"):
        trained.evaluate("another.txt")


def test_texts_with_labels(folder):
    own_files.reviews(folder / "reviews.csv")
    test = own_files.reviews(folder / "test.csv", 20)
    trained = fitted(folder, "texts", folder / "reviews.csv", text="body", label="stars", valid=test, test=test)
    rows = list(csv.DictReader(test.read_text().splitlines()))
    texts, labels = [row["body"] for row in rows], [int(row["stars"]) for row in rows]
    assert trained.evaluate(test) == trained.evaluate() == trained.evaluate(texts, labels)
    assert trained.evaluate({"body": texts, "stars": labels}) == trained.evaluate()
    with pytest.raises(ValueError, match="labels must be among 1, 5; got '3'"):
        trained.evaluate(["fine"], [3])
    with pytest.raises(ValueError, match="labels must have one for each of 2 items, got 1"):
        trained.evaluate(["fine", "bad"], [5])
    with pytest.raises(ValueError, match="labels must be given with texts"):
        trained.evaluate(["fine"])


def test_sequences_with_labels(folder):
    own_files.gestures(folder / "moves.csv")
    test = own_files.gestures(folder / "new.csv", 20)
    columns = {"label": "kind", "sequence": "id", "time": "t"}
    trained = fitted(folder, "sequences", folder / "moves.csv", **columns, valid=test, test=test)
    rows = list(csv.DictReader(test.read_text().splitlines()))
    values = np.array([[float(row["x"]), float(row["y"])] for row in rows]).reshape(20, 12, 2)
    assert trained.evaluate(test) == trained.evaluate()
    assert trained.evaluate(values, [row["kind"] for row in rows[::12]]) == trained.evaluate()
    assert trained.evaluate({name: [row[name] for row in rows] for name in rows[0]}) == trained.evaluate()


def test_series(folder):
    wave = [f"{10 + 3 * np.sin(2 * np.pi * step / 7):.4f}" for step in range(200)]
    (folder / "wave.csv").write_text("\n".join(["load", *wave]))
    trained = fitted(folder, "series", folder / "wave.csv", target="load", horizon=4)
    scores = trained.evaluate({"load": list(map(float, wave[100:]))})
    assert set(scores) == set(trained.result.test)
    assert scores["mae"] == pytest.approx(trained.result.test["mae"], rel=0.5)
    worse = trained.evaluate({"load": np.random.default_rng(0).normal(10, 3, 100)})
    assert worse["mae"] > 2 * scores["mae"]


def test_music_from_files_and_rolls(folder):
    own_files.pieces(folder / "midi")
    test = own_files.pieces(folder / "test", 4, seed=1)
    trained = fitted(folder, "music", folder / "midi", grid=1, valid=test, test=test)
    assert trained.evaluate(test) == trained.evaluate()
    assert trained.evaluate(sorted(test.iterdir())) == pytest.approx(trained.evaluate())
    assert trained.evaluate(trained.config.data.load().test) == trained.evaluate()
    with pytest.raises(ValueError, match=r"a piece must be an array of shape \(steps, 88\), got \(3, 87\)"):
        trained.evaluate(np.zeros((3, 87)))


def test_images(untrained_run):
    trained = rru.load(untrained_run("mnist"))
    digits = np.random.default_rng(0).integers(0, 256, (6, 28, 28))
    scores = trained.evaluate(digits, [0, 1, 2, 3, 4, 5])
    assert 0 <= scores["accuracy"] <= 100
    right = trained.predict(digits.clip(max=100))
    assert trained.evaluate(digits.clip(max=100), right)["accuracy"] == 100
    with pytest.raises(ValueError, match="must have values from 0 to 255, got 0 to 300"):
        trained.predict(np.full((28, 28), 300) * np.eye(28))
