"""Trained models by command: hear them, read them, ship them."""

import re

import mido
import pytest
from PIL import Image
from typer.testing import CliRunner

from rru import tasks
from rru.cli.commands import app
from rru.cli.console import shown
from rru.settings import presets
from rru.training import Run


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()

    def run(*arguments):
        result = runner.invoke(app, [str(argument) for argument in arguments])
        return result.exit_code, result.output

    return run


@pytest.fixture
def chorale_run(command):
    assert command("train", "bach", "--preset", "smoke", "--run-dir", "run", "--threads", "1")[0] == 0
    return "run"


def test_a_newcomer_trains_composes_and_exports(command, chorale_run, tmp_path):
    code, output = command("compose", chorale_run, "-o", "out/a.mid", "--bars", "2", "--from-test", "1", "--count", "2")
    assert code == 0, output
    assert re.search(
        r"2 bars after 8 given steps, \d+\.\d voices on average: out/a-1.mid, out/a-1.png, out/a-1.wav", output
    )
    assert mido.MidiFile(tmp_path / "out" / "a-2.mid").length == pytest.approx(16 * 0.75)
    code, output = command(
        *("compose", chorale_run, "--prompt", "out/a-1.mid", "--bars", "1", "--voices", "4", "--octave", "-1")
    )
    assert code == 0, output
    assert (tmp_path / "piece-bach.wav").stat().st_size > 10_000
    code, output = command("use", chorale_run, "out/a-1.mid", "-o", "used.mid")
    assert code == 0, output
    assert re.search(r"16 bars after \d+ given steps, .* voices on average: used.mid, used.png, used.wav", output)
    code, output = command("export", chorale_run, "-o", "model", "--format", "onnx")
    files = "model: README.md, config.json, initial_state.npz, sequence.onnx, step.onnx"
    assert (code, output) == (0, f"{files}\nNext: read model/README.md, whose code runs the model\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("write", "run"), "`write` needs a run of ptb-words"),
        (("classify", "run", "run/config.toml"), "`classify` needs a run of imdb, mnist, pmnist"),
        (("compose", "run", "--prompt", "run/config.toml"), "run/config.toml: is not a valid MIDI file"),
        (("compose", "run", "--from-test", "99"), "test piece of bach must be from 0 to 45, got 99"),
        (("compose", "run", "-o", "a.wav"), "output must be a .mid file, got a.wav"),
        (("compose", "nowhere"), "nowhere: is not a run: it has no config.toml"),
        (("export", "run", "-o", "run"), "run exists; choose another name, or remove it first"),
    ],
)
def test_mistakes_are_named_in_one_line(command, chorale_run, arguments, message):
    code, output = command(*arguments)
    assert code == (2 if "must be" in message or "exists" in message else 1)
    assert message in output
    assert len(output.splitlines()) == 1


def test_a_piece_is_kept_unless_force_is_given(command, chorale_run, tmp_path):
    (tmp_path / "mine.wav").write_text("mine")
    code, output = command("compose", chorale_run, "--bars", "1", "-o", "mine.mid")
    assert (code, output) == (2, "error: mine.wav exists; choose another name, or overwrite it with --force\n")
    assert (tmp_path / "mine.wav").read_text() == "mine"
    assert command("compose", chorale_run, "--bars", "1", "-o", "mine.mid", "--force")[0] == 0
    assert (tmp_path / "mine.wav").stat().st_size > 10_000


def test_pieces_without_a_name_have_that_of_the_task_and_never_collide(command, chorale_run, tmp_path):
    (tmp_path / "piece-bach-2.wav").write_text("mine")
    assert re.search(r"16 bars after an opening chord, .*: piece-bach.mid, ", command("use", chorale_run)[1])
    assert "1 bar after an opening chord, " in command("compose", chorale_run, "--bars", "1")[1]
    command("compose", chorale_run, "--bars", "1", "--count", "2")
    assert sorted(path.name for path in tmp_path.glob("*.mid")) == [
        "piece-bach-3.mid", "piece-bach-4.mid", "piece-bach-5.mid", "piece-bach.mid",
    ]  # fmt: skip
    assert "piece-bach.mid" in command("compose", chorale_run, "--bars", "1", "--force")[1]


def test_a_piece_without_a_prompt_begins_with_a_chord(command, chorale_run):
    assert "1 bar after an opening chord, " in command("compose", chorale_run, "--bars", "1")[1]


def test_names_and_prompts_are_shown_as_they_are(command, chorale_run):
    assert ":dog:.mid" in command("compose", chorale_run, "--bars", "1", "-o", ":dog:.mid")[1]


def test_unreadable_file_is_named_and_others_are_classified(command, tmp_path):
    config = presets.load("mnist", "gru", "smoke")
    options = {name: value for name, value in config.tables()["model"].items() if name not in ("cell", "budget")}
    model = tasks.ImageTask.architecture_of(config.task, None, None).build("gru", options, config.model.budget)
    Run.create(tmp_path / "digits", config).save_best(1, model.state_dict(), {"epoch": 1})
    Image.new("L", (28, 28)).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_text("no picture")
    code, output = command("classify", "digits", "bad.png", "good.png", "nowhere.png")
    first, second, third = (line for line in output.splitlines() if "has not ended" not in line)
    assert code == 1
    assert first.startswith("error: bad.png")
    assert second.startswith("good.png: ")
    assert third.startswith("error: ")
    assert "nowhere.png" in third


def test_control_characters_of_a_model_are_escaped():
    assert shown("a\x1b]0;title\x07 b\nc\td\x9b") == "a\\x1b]0;title\\x07 b\nc\td\\x9b"


def test_unfinished_run_is_used_with_a_warning(command, chorale_run, tmp_path):
    (tmp_path / "run" / "result.json").unlink()
    code, output = command("compose", chorale_run, "--bars", "1")
    assert code == 0
    assert "run: the run has not ended; using its best weights so far, after epoch 2" in output
