"""The examples on users' own data run, on small files; and so does the notebook."""

import ast
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import own_files

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(tmp_path, monkeypatch, capsys):
    """Run an example in an empty folder, and return what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_own_text(example, tmp_path):
    own_files.text(tmp_path / "novel.txt")
    output = example("own_text.py", "novel.txt", "--by", "words", "--preset", "smoke")
    assert output.startswith("novel.txt: text by words")
    assert "'perplexity'" in output


def test_own_midi_files(example, tmp_path):
    own_files.pieces(tmp_path / "midi")
    example("own_midi.py", "midi", "--grid", 1, "--preset", "smoke")
    assert {"new.mid", "new.png", "new.wav"} <= {path.name for path in tmp_path.iterdir()}


def test_own_labels(example, tmp_path):
    own_files.gestures(tmp_path / "gestures.csv")
    columns = ("--label", "kind", "--sequence", "id", "--time", "t")
    output = example("own_labels.py", "gestures.csv", *columns, "--preset", "smoke")
    assert output.count("macro F1") == 4


def test_own_series(example, tmp_path):
    days = np.arange("2026-01-01", "2026-04-01", dtype="datetime64[D]")
    (tmp_path / "energy.csv").write_text("day,load\n" + "".join(f"{day},{5 + n % 7}\n" for n, day in enumerate(days)))
    output = example("own_series.py", "energy.csv", "--target", "load", "--horizon", 3, "--preset", "smoke")
    assert output.startswith(
        "energy.csv: series to forecast; 'load'; 90 steps, every day from 2026-01-01 to 2026-03-31, season 7"
    )
    assert "seasonal naive" in output
    assert {"forecast.csv", "forecast.png"} <= {path.name for path in tmp_path.iterdir()}


def test_own_model(example, tmp_path):
    assert "finished: " in example("own_model.py", "--epochs", 1)
    assert (tmp_path / "runs" / "adder" / "result.json").exists()


def test_an_agent_with_resets(example):
    sizes = ("--updates", 2, "--steps", 12, "--environments", 3, "--parameters", 500)
    *_, rru, lstm, loop = example("agent.py", *sizes).splitlines()
    assert rru.startswith("RRU ")
    assert lstm.startswith("LSTM ")
    assert loop.startswith("nn.LSTM in a loop")
    assert loop.endswith("1.0 times as fast as the loop.")


def shown(value):
    """Return what a notebook shows of a value."""
    for form in ("_repr_html_", "_repr_svg_", "__repr__"):
        if hasattr(value, form):
            return getattr(value, form)()
    return ""


def test_the_notebook(tmp_path, monkeypatch, capsys):
    """Its cells are run in one process, with a smaller training, and the last expression of each is shown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    names, outputs = {}, []
    for cell in json.loads((EXAMPLES / "quickstart.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            source = "".join(cell["source"]).replace('preset="demo"', 'preset="smoke"').replace("horizon=7", SMOKE)
            *statements, last = ast.parse(source).body
            exec(compile(ast.Module(statements, []), "cell", "exec"), names)
            outputs.append(shown(eval(compile(ast.Expression(last.value), "cell", "eval"), names)))
    assert capsys.readouterr().out == ""
    model, piece, forecasts, scores, layer = outputs
    assert model.count("<svg") == 1
    assert "<audio" in model
    assert "<audio" in piece
    assert names["piece"].roll.shape == (8 + 32, 88)
    assert "<img" in forecasts
    assert len(ast.literal_eval(scores)) == 2
    assert "[4, 20, 32]" in layer
    assert "replaced with RRUs" in layer


SMOKE = 'horizon=7, preset="smoke"'


def test_with_skorch(example):
    pytest.importorskip("skorch", reason="skorch is not installed")
    assert float(example("with_skorch.py", "--epochs", 10).split()[-1]) > 0.8


@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_with_lightning(example):
    pytest.importorskip("lightning", reason="Lightning is not installed")
    output = example("with_lightning.py", "--epochs", 10)
    assert float(output.split()[-1]) < 0.1  # the mean error of always guessing 1 is 0.33
