"""A kind of data of one's own: the file that CONTRIBUTING.md shows is all that it takes."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

import rru
from rru import data, inference, report
from rru.data.own.formats import FORMATS
from rru.kinds import KINDS, kind_of, register_kind
from rru.tasks import TASKS
from rru.training import evaluate
from tests.report.samples import text_of

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture(autouse=True)
def waveforms(tmp_path, monkeypatch):
    """The kind that CONTRIBUTING.md adds, forgotten again afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    source = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)[1]
    names = {"__name__": "waveforms"}
    exec(compile(source, "waveforms.py", "exec"), names)
    yield names["WAVEFORMS"]
    for registry in (KINDS, FORMATS, TASKS):
        registry.pop("waveforms", None)


def write(path, count=60):
    """Write recordings that go up or down."""
    draw = random.Random(0)
    lines = []
    for number in range(count):
        slope = 1 if number % 2 else -1
        levels = [slope * step / 10 + draw.gauss(0, 0.1) for step in range(draw.randint(8, 12))]
        lines.append(f"{'up' if slope > 0 else 'down'} " + " ".join(f"{level:.3f}" for level in levels))
    path.write_text("\n".join(lines))
    return path


def test_it_is_recognised_and_described(tmp_path):
    own = data.from_path(write(tmp_path / "heart.wave"), every=2)
    assert own.kind == "waveforms"
    assert own.facts.classes == ("down", "up")
    assert "waveforms with labels" in own.summary
    assert own.load().train.values.shape[1] == 1
    with pytest.raises(ValueError, match="grid is not for waveforms with labels"):
        data.from_path(tmp_path / "heart.wave", grid=2)
    (tmp_path / "bad.wave").write_text("up 1 2\nup one\n")
    with pytest.raises(data.DataError, match="line 2: must have a label and numbers"):
        data.from_path(tmp_path / "bad.wave").summary  # noqa: B018


def test_it_is_trained_evaluated_used_exported_and_shown(tmp_path):
    own = data.from_path(write(tmp_path / "heart.wave"), every=2)
    trained = rru.fit(own, preset="smoke", settings={"schedule.epochs": 8, "task.limit": None}, folder="runs/heart")
    assert trained.config.data == rru.load("runs/heart").config.data
    assert trained.config.data.options == {"every": 2}
    assert evaluate(Path("runs/heart"), "test")["accuracy"] == trained.result.test["accuracy"]
    chances = inference.classify_all(trained, write(tmp_path / "new.wave", 4))
    assert list(chances) == ["line 1", "line 2", "line 3", "line 4"]
    assert set(chances["line 1"]) == {"down", "up"}
    inference.export(trained, tmp_path / "model", "safetensors")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "(steps, batch, 1) float32, scaled as data.json says" in card
    assert inference.classify_all(rru.load("model"), tmp_path / "new.wave") == chances
    with pytest.raises(inference.trained.RunError, match="labelled waveforms, for `classify`, `predict`"):
        inference.forecast(trained)
    report.write([Path("runs")], Path("page.html"))
    page = text_of(Path("page.html").read_text())
    assert "heart.wave" in page
    assert "Confusion matrix" in page


def test_a_name_is_taken_once_and_an_unknown_one_says_what_there_is(waveforms):
    assert register_kind(waveforms) is waveforms
    with pytest.raises(ValueError, match="'waveforms' is registered already"):
        register_kind(replace(waveforms, noun="others"))
    with pytest.raises(ValueError, match=r"kind must be one of words, .*waveforms; got 'waveform'.*did you mean"):
        kind_of("waveform")


def test_its_format_names_the_options_that_it_declares(waveforms):
    for options in ((), ("every", "speed")):
        other = replace(waveforms.format, name="others", options=options)
        with pytest.raises(ValueError, match=r"must be the same, differ in \{'(every|speed)'\}"):
            register_kind(replace(waveforms, format=other))
