"""Training by command, on the embedded chorales."""

import json
import re
import shutil

import pytest
from typer.testing import CliRunner

from rru.cli.commands import app
from rru.cli.demo import sparkline
from rru.settings import presets
from rru.training import precision as precisions
from tests.cli.terminal import screen


@pytest.fixture
def rru_command(tmp_path, monkeypatch):
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments])


def smoke(*more):
    """The command for a training of a second, on two pieces."""
    return ("train", "bach", "--preset", "smoke", "--set", "limit=2", "--set", "evaluation_limit=2", *more)


@pytest.mark.parametrize("cell", ["rru", "gru", "lstm", "mogrifier"])
def test_every_cell_trains_to_a_result(rru_command, tmp_path, cell):
    ran = rru_command(*smoke("--cell", cell))
    assert ran.exit_code == 0, ran.output
    (folder,) = (tmp_path / "runs" / "bach" / cell).iterdir()
    result = json.loads((folder / "result.json").read_bytes())
    assert result["status"] == "finished"
    assert result["test"]["nll"] < result["untrained_loss"]
    assert f"test: NLL {result['test']['nll']:.4f} nats per step" in ran.output
    assert "Next: rru use latest" in ran.output


def test_the_same_command_again_shows_the_same_result_and_trains_nothing(rru_command, tmp_path):
    first = rru_command(*smoke("--run-dir", "one"))
    again = rru_command(*smoke("--run-dir", "one"))
    assert first.exit_code == again.exit_code == 0
    assert "epoch 1" in first.output
    assert "epoch 1" not in again.output
    assert "\nalready finished: all 2 epochs are done\n" in again.output
    assert first.output.splitlines()[-4:] == again.output.splitlines()[-4:]
    assert first.output.splitlines()[-4].startswith("test: ")


def test_the_result_names_the_threads_that_it_was_trained_with(rru_command):
    """Not those of the command that shows it."""
    rru_command(*smoke("--run-dir", "one", "--threads", "2"))
    assert (
        rru_command(*smoke("--run-dir", "one", "--threads", "1")).output.splitlines()[-3].endswith(", with 2 threads")
    )


def test_another_seed_is_another_run_with_other_numbers(rru_command, tmp_path):
    for seed in (0, 1):
        assert rru_command(*smoke("--seed", seed)).exit_code == 0
    results = [json.loads(path.read_bytes()) for path in tmp_path.glob("runs/bach/rru/*/result.json")]
    assert len({result["test"]["nll"] for result in results}) == 2


def test_seed_can_be_set_with_set(rru_command):
    assert "bach, rru, seed 3:" in rru_command(*smoke("--set", "seed=3")).output


def test_bfloat16_is_another_run_and_is_shown_beside_it(rru_command, tmp_path, monkeypatch):
    monkeypatch.setattr(precisions, "multiplies_bfloat16", lambda device: True)
    rru_command(*smoke())
    ran = rru_command(*smoke("--precision", "bf16"))
    assert ran.exit_code == 0, ran.output
    assert "bach, rru, seed 0, bf16:" in ran.output
    assert rru_command(*smoke("--set", "precision=bf16")).output.count("already finished") == 1
    listed = rru_command("runs").output.splitlines()
    assert sum("precision=bf16" in line for line in listed) == 1
    assert "precision=bf16" in rru_command(*smoke("--precision", "auto", "--set", "budget=2M", "--dry-run")).output
    rru_command("report")
    assert "precision=bf16" in (tmp_path / "runs" / "report.html").read_text()
    run = next((tmp_path / "runs/bach/rru").iterdir())
    assert "--precision cannot be given with a run" in rru_command("train", run, "--precision", "bf16").output


def test_bfloat16_says_where_it_is_not_faster(rru_command, monkeypatch):
    monkeypatch.setattr(precisions, "multiplies_bfloat16", lambda device: False)
    ran = rru_command(*smoke("--precision", "bf16"))
    assert ran.exit_code == 0, ran.output
    assert "bf16 is not faster than float32 here" in " ".join(ran.output.split())


def test_runs_are_listed_evaluated_and_resumed(rru_command, tmp_path):
    assert "no runs" in rru_command("runs").output
    rru_command(*smoke("--run-dir", "runs/mine"))
    assert "finished" in rru_command("runs").output
    result = json.loads((tmp_path / "runs/mine/result.json").read_bytes())
    assert f"nll {result['test']['nll']:.6g}" in rru_command("evaluate", "latest", "--verbose").output
    for name in ("resume", "train"):
        assert "run folder: runs/mine" in rru_command(name, "latest").output
    assert "--seed cannot be given with a run" in rru_command("train", "latest", "--seed", "1").output
    assert "finished" in rru_command("runs", "runs").output


def test_runs_of_a_cell_can_be_told_apart(rru_command):
    for more in ((), ("--seed", "3"), ("--set", "lr=0.02"), ("--set", "budget=30k", "--set", "epochs=1")):
        rru_command(*smoke("--cell", "lstm", *more))
    head, *rows = [re.split(r" {2,}", line) for line in rru_command("runs").stdout.splitlines()]
    assert head[:3] == ["task", "cell", "preset"]
    shown = sorted((row[3], row[-3]) for row in rows)
    assert shown == [
        ("0", "limit=2 evaluation_limit=2"),
        ("0", "limit=2 evaluation_limit=2 budget=30k epochs=1"),
        ("0", "limit=2 evaluation_limit=2 lr=0.02"),
        ("3", "limit=2 evaluation_limit=2"),
    ]
    assert all(re.fullmatch(r"nll \d+\.\d{4}", row[6]) for row in rows)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", row[-2]) for row in rows)


def test_a_run_with_a_broken_result_does_not_hide_the_others(rru_command, tmp_path):
    rru_command(*smoke("--run-dir", "runs/an [odd] name"))
    for name in ("broken", "empty"):
        shutil.copytree(tmp_path / "runs/an [odd] name", tmp_path / "runs" / name)
    (tmp_path / "runs/broken/result.json").write_text("{")
    (tmp_path / "runs/empty/result.json").write_text("{}")
    ran = rru_command("runs")
    assert ran.exit_code == 0
    assert "runs/broken/result.json: cannot be read" in ran.output
    assert "runs/empty: result.json is of another version of rru: it lacks best, best_epoch" in ran.output
    assert re.search(r"finished .*  runs/an \[odd\] name\n", ran.output)
    assert ran.output.count("  damaged  ") == 2


def test_scores_that_are_not_finite_are_shown_too(rru_command, tmp_path):
    rru_command(*smoke("--run-dir", "runs/mine"))
    file = tmp_path / "runs/mine/result.json"
    result = json.loads(file.read_bytes())
    file.write_text(json.dumps({**result, "test": {"nll": None, "nll_per_frame": 1e30, "loss": None}}))
    assert rru_command("runs").exit_code == 0
    assert "nll_per_frame 1e+30" in rru_command("train", "runs/mine", "--verbose").output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (smoke("--set", "budget=1e15"), "not enough memory for this model"),
        (smoke("--device", "nowhere"), "device must be one that torch has here"),
        (smoke("--set", "lrr=1"), "did you mean optimiser.lr"),
        (smoke("--set", "dropout=2"), "model.dropout must be"),
        (
            smoke("--precision", "fp16"),
            "precision must be one of float32, bf16, auto; got 'fp16'; did you mean 'bf16'?",
        ),
        (("train", "bch"), "did you mean 'bach'"),
        (("train", "./nowhere/novel.txt"), "novel.txt: does not exist"),
        (("runs", "latest"), "FOLDER must be a folder of runs; latest is a run"),
        (("train", "bach", "--preset", "big"), "preset must be one of paper, cpu, smoke, best, nade, demo; got 'big'"),
        (("resume", "nowhere"), "TASK must be a file or folder, a run, or one of bach"),
        (("evaluate", "nowhere"), "nowhere: is not a run: it has no config.toml"),
    ],
)
def test_mistakes_are_one_line_errors(rru_command, arguments, said):
    ran = rru_command(*arguments)
    assert ran.exit_code == (1 if any(word in said for word in ("memory", "config.toml", "not exist")) else 2)
    assert said in ran.output.splitlines()[-1]
    assert len(ran.output.splitlines()) <= 2  # the run's own line, where there is one, and the error


def test_a_learning_curve_is_drawn_from_low_to_high():
    assert sparkline([3.0, 2.0, 1.0], 1.0, 3.0) == "█▅▁"


def test_the_demo_shows_every_cell_at_work_then_results_and_the_second_time_only_results(
    rru_command, tmp_path, monkeypatch, terminal
):
    load = presets.load
    few = ["task.limit=2", "task.evaluation_limit=2"]
    monkeypatch.setattr(presets, "load", lambda task, cell, preset: presets.override(load(task, cell, "smoke"), few))
    ran = rru_command("demo")
    assert ran.exit_code == 0, ran.output
    for cell in ("rru", "gru", "lstm", "mogrifier"):
        assert f"{cell:<9}" in terminal.file.getvalue()
        (result,) = tmp_path.glob(f"runs/bach/{cell}/*/result.json")
        assert f"{json.loads(result.read_bytes())['test']['nll']:.3f}" in ran.output
    results = {
        path.parent: json.loads(path.read_bytes())["test"]["nll"] for path in tmp_path.glob("runs/*/*/*/result.json")
    }
    winner = min(results, key=results.__getitem__).relative_to(tmp_path)
    assert f"Next: rru compose {winner} " in terminal.file.getvalue()
    assert "waiting" in terminal.file.getvalue()
    assert "▁" in ran.output
    assert "█" in ran.output
    assert not any("━" in line for line in screen(terminal.file.getvalue(), 100))

    terminal.file.truncate(0)
    again = rru_command("demo")
    assert "Trained before: rru, gru, lstm, mogrifier." in again.output
    assert "━" not in terminal.file.getvalue()
    assert again.output.splitlines()[2:] == ran.output.splitlines()[1:]
    for path in tmp_path.glob("runs/bach/*/*"):
        assert str(path.relative_to(tmp_path)) in [line[7:] for line in again.output.splitlines()]

    runs = {
        path.parent: json.loads(path.read_bytes())["test"]["nll"] for path in tmp_path.glob("runs/*/*/*/result.json")
    }
    best = min(runs, key=runs.__getitem__).relative_to(tmp_path)
    assert f" predicts best: {min(runs.values()):.2f}; " in again.output
    assert f"Listen: {best}/music/chorale.wav" in again.output
    (page,) = tmp_path.glob("runs/bach/*/*/page.html")
    assert page.parent.parent.name == "rru"
    assert f"play   {page.relative_to(tmp_path)}" in again.output
    assert again.output.index("\nplay ") < again.output.index("\nreport ") < again.output.index("\nruns ")
    assert f'href="{page.relative_to(tmp_path / "runs")}"' in (tmp_path / "runs" / "report.html").read_text()
    assert f"Next: rru compose {best} " in terminal.file.getvalue()
    assert "not the JSB Chorales of the paper" in again.output


@pytest.mark.parametrize("wrong", ["nvel.txt", "./nvel.txt", "novl.txt"])
def test_the_name_of_a_similar_file_is_suggested(rru_command, tmp_path, wrong):
    (tmp_path / "novel.txt").write_text("It was")
    assert (
        f"{wrong.removeprefix('./')}: does not exist; did you mean 'novel.txt'?" in rru_command("train", wrong).output
    )
    (tmp_path / "midi-folder").mkdir()
    assert "did you mean 'midi-folder'?" in rru_command("train", "midi-foldr").output
    assert "did you mean" not in rru_command("train", "chart.csv").output
