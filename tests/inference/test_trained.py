"""The verbs of a trained model, for every kind of data."""

from pathlib import Path

import numpy as np
import pytest
import torch

import rru
from rru.data import DataError
from rru.inference import classify_all, forecast, write
from rru.training import RunError
from tests import own_files

DAYS = np.arange("2026-01-01", "2026-05-01", dtype="datetime64[D]")
WAVE = 10 + 3 * np.sin(2 * np.pi * np.arange(len(DAYS)) / 7)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return models by kind: of small files, trained for a moment."""
    folder = tmp_path_factory.mktemp("verbs")
    (folder / "wave.csv").write_text("load\n" + "".join(f"{value:.4f}\n" for value in WAVE))
    readings = {
        "characters": (own_files.text(folder / "novel.txt"), {}),
        "words": (folder / "novel.txt", {"by": "words"}),
        "texts": (own_files.reviews(folder / "reviews.csv"), {"text": "body", "label": "stars"}),
        "sequences": (own_files.gestures(folder / "moves.csv"), {"label": "kind", "sequence": "id", "time": "t"}),
        "series": (folder / "wave.csv", {"target": "load", "horizon": 5}),
        "music": ("bach", {}),
    }
    epochs = {"texts": 12, "sequences": 8}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRU_CACHE_DIR", str(folder / "cache"))
        patch.chdir(folder)
        yield {
            kind: rru.fit(
                task, preset="smoke", settings={"epochs": epochs.get(kind, 1)}, folder=folder / "runs" / kind, **reading
            )
            for kind, (task, reading) in readings.items()
        }


def test_the_wrong_verb_names_the_right_ones(models):
    with pytest.raises(RunError, match=r"`compose` needs .* music; .* text, for `write`, `stream`, `evaluate` and"):
        models["characters"].compose()
    with pytest.raises(RunError, match=r"`predict` is for .* classify or forecast; .* music, for `compose`, `stream`"):
        models["music"].predict()
    with pytest.raises(
        RunError, match=r"`stream` needs .* series, for `forecast`, `backtest`, `predict`, `evaluate` and `export`"
    ):
        models["series"].stream()
    with pytest.raises(RunError, match="labelled texts, for `classify`, `stream`, `predict`, `evaluate` and `export`"):
        models["texts"].write()
    assert {"write", "history"} <= set(dir(models["words"]))
    assert not {"compose", "predict"} & set(dir(models["words"]))


@pytest.mark.parametrize("kind", ["characters", "words", "texts", "sequences", "series", "music"])
def test_a_model_is_described_in_a_line_and_shown_in_a_notebook(models, kind):
    trained = models[kind]
    assert len(repr(trained)) < 400
    assert "\n" not in repr(trained)
    assert f"rru on {trained.config.title}" in repr(trained)
    assert trained.verbs[0] in repr(trained)
    page = trained._repr_html_()
    assert "<svg" in page
    assert f"{trained.result.test[trained.result.metric]:.4g}" in page
    assert ("<audio" in page) == (kind == "music")
    assert ("<img" in page) == (kind in ("music", "series"))
    assert ("<pre" in page) == (kind in ("characters", "words"))


def test_names_from_a_strangers_files_are_escaped_in_a_notebook(models):
    trained = models["texts"]
    changes = {"summary": "<script>alert(1)</script>"}
    facts = type(trained.facts)(**{**vars(trained.facts), **changes})
    assert "<script>" not in rru.inference.Trained(**{**vars(trained), "facts": facts})._repr_html_()


def test_a_large_vocabulary_is_not_printed(models):
    assert len(repr(models["words"].vocabulary)) < 300


def test_write_continues_a_text(models):
    text = models["characters"].write("The qu", 30, seed=1)
    assert text == "The qu" + "".join(write(models["characters"], "The qu", 30, seed=1))
    assert len(text) == 36
    assert models["characters"].write("The qu", 30, seed=2) != text


def test_compose_from_a_roll_a_file_or_nothing_and_save(models, tmp_path):
    roll = np.zeros((4, 88), int)
    roll[:, 40] = 1
    piece = models["music"].compose(roll, bars=2)
    assert piece.roll.shape == (4 + 2 * 4, 88)
    assert (piece.roll[:4] == roll).all()
    files = piece.save(tmp_path / "new.mid")
    assert [file.suffix for file in files] == [".mid", ".png", ".wav"]
    again = models["music"].compose(str(files[0]), 1)
    assert again.prompt == len(piece.roll)
    assert models["music"].compose(bars=1).prompt == 1
    with pytest.raises(TypeError, match=r"prompt must be a MIDI file or a piano roll \(T, 88\); for 2 bars: bars=2"):
        models["music"].compose(2)
    with pytest.raises(ValueError, match="bars must be a whole number of at least 1, got '2'"):
        models["music"].compose(roll, "2")
    assert "<audio" in piece._repr_html_()
    assert repr(piece) == "<Piece of 12 steps, 4 of them given, 4 in a bar>"
    with pytest.raises(ValueError, match="overwrite it with force=True"):
        piece.save(tmp_path / "new.mid")
    piece.save(tmp_path / "new.mid", force=True)


def test_forecast_takes_a_file_a_table_and_values(models, tmp_path):
    trained = models["series"]
    whole = trained.forecast()
    assert whole[0].quantiles.shape == (5, 5)
    for data in (
        {"load": np.round(WAVE, 4)},
        np.round(WAVE, 4),
        np.round(WAVE, 4).tolist(),
        str(trained.config.data.path),
    ):
        assert trained.forecast(data)[0].quantiles.tolist() == whole[0].quantiles.tolist()
    assert forecast(trained)[0].quantiles.tolist() == whole[0].quantiles.tolist()
    assert trained.predict().tolist() == whole[0].quantiles[:, 2].tolist()
    assert repr(whole[0]).startswith("<Forecast, 'load', 5 steps: ")
    columns = whole.columns()
    assert list(columns) == ["step", "forecast", "low_80", "high_80", "low_95", "high_95"]
    assert columns["step"].tolist() == [120, 121, 122, 123, 124]
    assert columns["forecast"].tolist() == trained.predict().tolist()
    table, picture = whole.save(tmp_path / "forecast.csv")
    assert table.read_text().splitlines()[1].startswith(f"120,{columns['forecast'][0]:.8g},")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_forecast_fewer_steps_but_not_more(models):
    short = models["series"].forecast(horizon=2)
    assert short[0].quantiles.tolist() == models["series"].forecast()[0].quantiles[:2].tolist()
    assert len(short.columns()["step"]) == 2
    with pytest.raises(ValueError, match="horizon must be from 1 to 5, as in training; got 6"):
        models["series"].forecast(horizon=6)


def test_a_forecast_with_names_and_times(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    frame = {"day": np.tile(DAYS, 2), "load": np.tile(WAVE, 2), "place": np.repeat(["a", "b"], len(DAYS))}
    options = {"target": "load", "horizon": 3, "id": "place", "preset": "smoke", "settings": {"epochs": 1}}
    trained = rru.fit(frame, folder=tmp_path / "run", **options)
    columns = trained.forecast(frame).columns()
    assert columns["series"].tolist() == ["a"] * 3 + ["b"] * 3
    assert columns["time"][0] == np.datetime64("2026-05-01")
    assert trained.predict(frame).shape == (2, 3)
    with pytest.raises(DataError, match="DataFrame: has no column 'place'"):
        trained.forecast({"day": DAYS, "load": WAVE})


def test_classify_texts_tables_and_files(models, tmp_path):
    trained = models["texts"]
    bad, good = "it was awful, truly awful", "it was great, truly great"
    assert list(trained.classify(good)) == ["5", "1"]
    assert [next(iter(chances)) for chances in trained.classify([bad, good])] == ["1", "5"]
    assert trained.predict(bad) == "1"
    assert trained.predict([bad, good]) == trained.predict({"body": [bad, good]}) == ["1", "5"]
    (tmp_path / "new.txt").write_text(good)
    assert (
        trained.classify(str(tmp_path / "new.txt")) == trained.classify(tmp_path / "new.txt") == trained.classify(good)
    )
    assert list(classify_all(trained, [bad, good])) == ["item 1", "item 2"]
    with pytest.raises(DataError, match=r"other\.txt: does not exist; to give it as a text, put it in a list"):
        trained.classify("other.txt")
    with pytest.raises(TypeError, match="texts must be strings, got int"):
        trained.classify([3])
    with pytest.raises(ValueError, match=r"a text must have at least one word, got '\.\.\.'"):
        trained.classify(["good", "..."])


def test_classify_arrays_as_in_the_table(models):
    trained = models["sequences"]
    lines = [line.split(",") for line in trained.config.data.path.read_text().splitlines()[1:]]
    values = np.array([[float(line[2]), float(line[3])] for line in lines]).reshape(40, 12, 2)
    by_name = classify_all(trained, trained.config.data.path)
    assert trained.classify(values) == list(by_name.values())
    assert trained.classify(values[3]) == by_name["g3"]
    assert trained.predict(list(values[:4])) == ["down", "up", "down", "up"]
    with pytest.raises(ValueError, match=r"a sequence must be an array of shape \(steps, 2\), got \(12, 3\)"):
        trained.classify([np.zeros((12, 3))])
    with pytest.raises(DataError, match="must be a table with the columns that the run was trained on"):
        trained.classify("moves")
    with pytest.raises(DataError, match=r"gone\.csv: cannot be read"):
        trained.classify("gone.csv")


@pytest.mark.parametrize("kind", ["characters", "texts", "sequences", "music"])
def test_a_stream_gives_what_the_model_gives(models, kind):
    trained, stream = models[kind], models[kind].stream()
    stream.open(["anna", "ben"])
    inputs = torch.zeros(5, 2, 88) if kind == "music" else torch.rand(5, 2, 2)
    if trained.vocabulary is not None:
        inputs = torch.randint(2, len(trained.vocabulary), (5, 2))
    with torch.no_grad():
        whole = trained.model(inputs)[0]
    steps = [stream.step(["anna", "ben"], step) for step in inputs]
    torch.testing.assert_close(steps[-1], whole if kind in ("texts", "sequences") else whole[-1])


def test_export_and_its_model(models, tmp_path):
    trained = models["characters"]
    assert "model.safetensors" in trained.export(str(tmp_path / "model"))
    again = rru.load(tmp_path / "model")
    assert again.write("The ", 20) == trained.write("The ", 20)
    assert again.history == []
    assert "exported" in again._repr_html_()
    with pytest.raises(RunError, match="has no epochs to draw; an exported model does not have them"):
        again.plot()


def test_the_history_has_every_epoch_and_can_be_drawn(models, tmp_path):
    trained = models["sequences"]
    assert [epoch.epoch for epoch in trained.history] == list(range(9))
    assert trained.history[0].train_loss is None
    assert trained.history[trained.epoch].validation == trained.result.validation
    svg = str(trained.plot())
    assert svg.count("<polyline") == 2
    assert svg == trained.plot()._repr_svg_()
    assert str(trained.plot("accuracy")).count("<polyline") == 1
    assert trained.plot().save(tmp_path / "curve.svg").read_text() == svg
    with pytest.raises(ValueError, match="score must be one of accuracy, macro_f1, loss; got 'bpc'"):
        trained.plot("bpc")


def test_a_run_is_loaded_by_its_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("runs/bach/rru/0123456789ab")
    rru.fit("bach", preset="smoke", folder=folder, settings={"epochs": 1})
    assert rru.load("0123456789ab").path == rru.load("0123").path == folder
    Path("runs/bach/gru").mkdir()
    (tmp_path / folder).rename("runs/bach/gru/0123ffffffff")
    rru.fit("bach", preset="smoke", folder=folder, settings={"epochs": 1})
    with pytest.raises(RunError, match="0123: is the start of 2 ids; write more of it: runs/"):
        rru.load("0123")
    with pytest.raises(RunError, match="4567: is not a run"):
        rru.load("4567")


def test_wrong_arguments_are_named(models, monkeypatch, tmp_path):
    with pytest.raises(TypeError, match="prompt must be a text, got 5 of type int"):
        models["characters"].write(5)
    with pytest.raises(ValueError, match="a text must have at least one word, got ''"):
        models["texts"].classify("")


def test_the_validation_split_has_both_names(models):
    assert models["texts"].evaluate(split="validation") == models["texts"].evaluate(split="valid")


def test_export_takes_the_format_by_the_name_of_the_command(models, tmp_path):
    assert "model.safetensors" in models["texts"].export(tmp_path / "new", format="safetensors")
    with pytest.raises(ValueError, match="format must be safetensors, onnx, torch-export, c or web, got 'gguf'"):
        models["texts"].export(tmp_path / "old", form="gguf")


def test_load_takes_what_commands_take(models, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=r"latest: is not a run: .*, and there are no runs in runs"):
        rru.load("latest")
    trained = rru.fit("bach", preset="smoke", settings={"epochs": 1})
    assert rru.load("latest").path == rru.load(trained.path.name[:3]).path == trained.path
    with pytest.raises(RunError, match=r"nix: is not a run: .*, and no id starts with it; runs in runs: runs/bach/rru"):
        rru.load("nix")
