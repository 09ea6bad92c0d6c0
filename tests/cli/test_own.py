"""Own files by command, from the file to the report."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import rru
import rru.training
from rru import report
from rru.cli.commands import app
from rru.training import Run
from tests import own_files


@pytest.fixture
def rru_command(tmp_path, monkeypatch):
    """Run a command in an empty folder; the exit code must be 0, or another if asked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    runner = CliRunner()

    def run(*arguments, code=0):
        ran = runner.invoke(app, [str(argument) for argument in arguments])
        assert ran.exit_code == code, (ran.output, ran.exception)
        return ran.output

    return run


def only_run(root):
    """The folder of the only run below a folder."""
    (folder,) = {path.parent for path in root.rglob("config.toml")}
    return folder


def test_a_text_from_file_to_writing_and_report(rru_command, tmp_path):
    file = own_files.text(tmp_path / "novel.txt")
    said = rru_command("train", "novel.txt", "--dry-run")
    assert "novel.txt: text by characters" in said
    assert "preset auto: context=" in said
    assert not (tmp_path / "runs").exists()
    assert rru_command("data", "inspect", "novel.txt").splitlines()[0] == said.splitlines()[0]
    rru_command("train", "novel.txt", "--preset", "smoke")
    folder = only_run(tmp_path / "runs" / "novel")
    first = json.loads((folder / "result.json").read_bytes())["test"]
    rru_command("evaluate", folder)
    content = file.read_bytes()
    file.write_bytes(content.replace(b"best", b"last"))
    assert "still 1" in rru_command("evaluate", folder, code=1).replace("2", "1")
    file.unlink()
    assert len(rru_command("write", folder, "--prompt", "The ", "--length", "9")) > 9
    assert "\nThe " in rru_command("use", "latest", "The ")
    assert "characters: written.txt" in rru_command("use", "latest", "The ", "-o", "written.txt")
    assert Path("written.txt").read_text().startswith("The ")
    for command in ("use", "write"):
        assert "written.txt exists; choose another" in rru_command(command, "latest", "-o", "written.txt", code=2)
    assert "INPUT must be a text for this run, got 2" in rru_command("use", "latest", "a", "b", code=2)
    rru_command("export", folder, "-o", "model")
    assert rru.load("model").config.data.path == Path("novel.txt")
    assert "novel.txt: is gone; put it back or" in rru_command("evaluate", folder, code=1)
    rru_command("report", "-o", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Your data" in page
    assert "novel.txt" in page
    assert f"{first['bpc']:.2f}" in page
    assert "smoke" in rru_command("runs")


def test_an_interrupted_run_continues_to_the_same_result_but_not_on_other_data(rru_command, tmp_path):
    own_files.text(tmp_path / "novel.txt")
    whole = rru.fit(rru.data.from_text("novel.txt"), preset="smoke", folder="whole")
    calls = iter(range(1000))
    with pytest.raises(rru.training.RunError, match="has no trained weights: stopped"):
        rru.fit(rru.data.from_text("novel.txt"), preset="smoke", folder="part", stop=lambda: next(calls) > 3)
    content = (tmp_path / "novel.txt").read_bytes()
    (tmp_path / "novel.txt").write_bytes(content + b"more")
    assert "has changed since the run began: it had" in rru_command("resume", "part", code=1)
    (tmp_path / "novel.txt").write_bytes(content)
    about = (tmp_path / "part" / "data.json").read_text()
    (tmp_path / "part" / "data.json").write_text(about.replace('"vocabulary": ', '"vocabulary": 1'))
    assert "an earlier version of rru split its data differently" in rru_command("resume", "part", code=1)
    (tmp_path / "part" / "data.json").write_text(about)
    rru_command("resume", "part")
    assert Run("part").result().test == whole.result.test


def test_midi_from_folder_to_composing(rru_command, tmp_path):
    own_files.pieces(tmp_path / "midi")
    said = rru_command("train", "midi", "--grid", 2, "--transpose", 5, "--preset", "smoke")
    assert "16 / 2 / 2 pieces" in said
    folder = only_run(tmp_path / "runs")
    assert Run(folder).config.task.transposition == 5
    rru_command("compose", folder, "--bars", 2, "-o", "new.mid", "--prompt", "midi/000.mid")
    assert (tmp_path / "new.png").exists()
    model = rru.load(folder).model
    stream = rru.stream(model)
    stream.open(["one"])
    assert stream.step(["one"], torch.zeros(1, 88)).shape == (1, 88 * model.layers.output_size)


def test_labelled_texts_and_sequences_are_classified_and_shown(rru_command, tmp_path):
    own_files.reviews(tmp_path / "reviews.csv")
    own_files.gestures(tmp_path / "gestures.csv")
    rru_command("train", "reviews.csv", "--text", "body", "--label", "stars", "--preset", "smoke", "--set", "epochs=8")
    columns = ("--label", "kind", "--sequence", "id", "--time", "t")
    said = rru_command("train", "gestures.csv", *columns, "--preset", "smoke", "--set", "epochs=8", "--cell", "gru")
    texts, sequences = (only_run(tmp_path / "runs" / name) for name in ("reviews", "gestures"))
    scores = Run(sequences).result().test
    assert {"accuracy", "macro_f1"} <= set(scores)
    assert scores["accuracy"] > 90
    assert f"test: {scores['accuracy']:.1f} % right (" in said
    assert "; the commonest class: 50 %" in said
    assert re.search(r"epoch 8: train loss \d\.\d{4}, validation accuracy \d+\.\d %, best \d+\.\d % \(epoch", said)
    assert re.search(r" accuracy \d+\.\d % +\d+\.\d % ", rru_command("runs"))
    said = rru_command("train", "gestures.csv", *columns, "--preset", "smoke", "--set", "epochs=8", "--cell", "gru")
    assert "\nalready finished: all 8 epochs are done\n" in said
    (tmp_path / "new.txt").write_text("it was great, truly great")
    assert rru_command("classify", texts, "new.txt").startswith("new.txt: 5 ")
    assert rru_command("use", texts, "new.txt").startswith("new.txt: 5 ")
    assert "--output is not for" in rru_command("use", texts, "new.txt", "-o", "answers.txt", code=2)
    assert "INPUT must be files to classify" in rru_command("use", texts, code=2)
    (tmp_path / "one.csv").write_text('body\n"it was awful, truly awful"\n')
    assert rru_command("classify", texts, "one.csv").startswith("one.csv, row 1: 1 ")
    own_files.gestures(tmp_path / "new.csv", count=2)
    assert "new.csv, g0: down" in rru_command("classify", sequences, "new.csv")
    steps = [line.split(",") for line in (tmp_path / "new.csv").read_text().splitlines()[1:]]
    lines = "\n".join(",".join(step[2:4]) for step in steps if step[0] == "g0")
    answers = CliRunner().invoke(app, ["stream", str(sequences)], input=lines).stdout.splitlines()
    assert len(answers) == len(lines.splitlines())
    assert answers[-1].startswith("down ")
    for folder, form in ((texts, "torch-export"), (sequences, "torch-export")):
        rru_command("export", folder, "-o", f"{folder.parent.parent.name}-{form}", "--format", form)
    rru_command("report", "-o", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count('class="confusion"') == 2
    assert "2 classes: down 20, up 20" in page
    assert f"Macro F1 {scores['macro_f1']:.2f} %." in page


@pytest.mark.parametrize("kind", ["texts", "sequences", "series", "music"])
def test_a_plan_on_own_data_says_how_long_it_takes_before_any_run(rru_command, tmp_path, kind):
    own_files.reviews(tmp_path / "reviews.csv")
    own_files.gestures(tmp_path / "gestures.csv")
    own_files.pieces(tmp_path / "midi")
    (tmp_path / "energy.csv").write_text("load\n" + "".join(f"{5 + n % 7 + n / 100}\n" for n in range(200)))
    words = {
        "texts": ("reviews.csv", "--text", "body", "--label", "stars"),
        "sequences": ("gestures.csv", "--label", "kind", "--sequence", "id", "--time", "t"),
        "series": ("energy.csv", "--target", "load", "--horizon", 4),
        "music": ("midi",),
    }
    assert "a rough estimate: " in rru_command("plan", "compare", "--data", *words[kind])


def test_all_cells_are_compared_on_own_data_at_equal_parameters(rru_command, tmp_path):
    own_files.text(tmp_path / "novel.txt")
    assert "a rough estimate: " in rru_command("plan", "compare", "--data", "novel.txt")
    said = rru_command(
        "run", "compare", "--data", "novel.txt", "--preset", "smoke", "--seeds", "0-1", "--cells", "rru,gru"
    )
    assert "Comparison on novel.txt: 4 of 4 runs to do" in said
    assert re.search(r"mean test score, the best first:\n  novel +(RRU|GRU) +bpc \d\.\d{4} +2 runs\n", said)
    assert len(re.findall(r"\n  novel +(?:RRU|GRU) +bpc", said)) == 2
    sizes = [json.loads(path.read_bytes())["parameters"] for path in (tmp_path / "runs").rglob("result.json")]
    assert max(sizes) < 1.05 * min(sizes)
    assert "4 of 4" in rru_command("plan", "compare", "--data", "novel.txt", "--preset", "smoke", "--seeds", "0-1",
                                   "--cells", "rru,gru").replace("4 finished", "4 of 4")  # fmt: skip
    made = report.write([tmp_path / "runs"], tmp_path / "page.html", markdown=tmp_path / "table.md")
    assert not made.problems
    assert "RRU" in (tmp_path / "table.md").read_text()
    assert "needs your own data" in rru_command("run", "compare", code=2)


def test_tune_searches_on_own_data(rru_command, tmp_path):
    own_files.text(tmp_path / "novel.txt")
    said = rru_command("tune", "novel.txt", "--by", "words", "--preset", "smoke", "--trials", 2)
    assert "to train it again: rru train novel.txt --by words" in said


def test_names_and_files(rru_command, tmp_path):
    (tmp_path / "bach").mkdir()
    assert "using the data set bach; write ./bach" in rru_command("train", "bach", "--dry-run")
    assert "missing.txt: does not exist" in rru_command("train", "missing.txt", code=1)
    assert "missing: does not exist" in rru_command("train", "missing/", code=1)
    assert "TASK must be a file or folder, a run, or one of bach" in rru_command("train", "novel", code=2)
    assert "--by is only for your own data, not for jsb" in rru_command("train", "jsb", "--by", "words", code=2)
    own_files.gestures(tmp_path / "moves.csv")
    assert "--target COLUMN --horizon STEPS to forecast" in rru_command("train", "moves.csv", code=1)
    own_files.text(tmp_path / "novel.txt")
    assert "--horizon is not for text by characters" in rru_command("train", "novel.txt", "--horizon", 3, code=2)
    assert "preset must be one of auto, smoke" in rru_command("train", "novel.txt", "--preset", "paper", code=2)
    assert not (tmp_path / "runs").exists()


def test_fit_trains_any_model_and_continues_where_it_stopped(tmp_path):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, 5, generator=generator)
    targets = inputs @ torch.arange(5.0)

    def loaders():
        pairs = torch.utils.data.TensorDataset(inputs, targets)
        return torch.utils.data.DataLoader(pairs, 8, shuffle=True), torch.utils.data.DataLoader(pairs, 16)

    def model():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(5, 1), torch.nn.Flatten(0), torch.nn.Dropout(0.1))

    def fit(folder, **more):
        train, valid = loaders()
        settings = {"optimiser.lr": 0.05, "schedule.epochs": 6}
        given = {"loss": torch.nn.functional.mse_loss, "metric": torch.nn.functional.l1_loss, "settings": settings}
        made = model()
        result = rru.fit(made, train, valid, test=valid, folder=tmp_path / folder, **given, **more)
        return result, made

    whole, first = fit("whole")
    calls = iter(range(100))
    stopped, _ = fit("part", stop=lambda: next(calls) == 19)
    assert stopped.status == "stopped"
    again, second = fit("part")
    assert again.test == whole.test
    assert whole.best < 0.5 * whole.untrained_loss
    assert all(torch.equal(one, two) for one, two in zip(first.parameters(), second.parameters(), strict=True))
    made = report.write([tmp_path], tmp_path / "page.html")
    assert not made.problems
    with pytest.raises(rru.training.RunError, match=r"only the call of `rru.fit` that started it can use it"):
        rru.load(tmp_path / "whole")
    with pytest.raises(rru.training.RunError, match=r"other settings \(schedule.epochs is 6, not 7"):
        rru.fit(model(), *loaders(), loss=torch.nn.functional.mse_loss, metric=torch.nn.functional.l1_loss,
                folder=tmp_path / "part", settings={"optimiser.lr": 0.05, "schedule.epochs": 7})  # fmt: skip
    assert np.isfinite(whole.best)


def test_missing_step_of_a_single_row_is_kept(rru_command, tmp_path):
    rows = [f"{n},{n + 1},{n % 3},{n % 5},{'up' if n % 2 else 'down'}" for n in range(40)]
    (tmp_path / "wide.csv").write_text("a,b,c,d,label\n" + "\n".join(rows) + "\n")
    rru_command("train", "wide.csv", "--label", "label", "--preset", "smoke")
    folder = only_run(tmp_path / "runs")
    (tmp_path / "new.csv").write_text("a,b,c,d\n1,,3,5\n")
    alone = rru_command("classify", folder, "new.csv").splitlines()[:-1]  # the last line names the next command
    (tmp_path / "new.csv").write_text("a,b,c,d\n1,,3,5\n2,4,6,8\n")
    assert rru_command("classify", folder, "new.csv").splitlines()[: len(alone)] == alone
