"""Trained models by command: hear them, read them, ship them."""

import mido
import pytest
from typer.testing import CliRunner

from rru.cli import app
from rru.cli.console import shown


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs a command in an empty folder."""
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
    assert "2 bars after 8 given steps: out/a-1.mid, out/a-1.png, out/a-1.wav" in output
    assert mido.MidiFile(tmp_path / "out" / "a-2.mid").length == pytest.approx(16 * 0.75)
    code, output = command("compose", chorale_run, "--prompt", "out/a-1.mid", "--bars", "1")
    assert code == 0, output
    assert (tmp_path / "chorale.wav").stat().st_size > 10_000
    code, output = command("export", chorale_run, "-o", "model", "--format", "onnx")
    assert (code, output) == (0, "model: README.md, config.toml, initial_state.npz, sequence.onnx, step.onnx\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("write", "run"), "to write, a run must be of one of ptb-words"),
        (("classify", "run", "run/config.toml"), "to classify, a run must be of one of imdb, mnist, pmnist"),
        (("compose", "run", "--prompt", "run/config.toml"), "run/config.toml: is not a MIDI file that can be read"),
        (("compose", "run", "--from-test", "99"), "the test set of bach has pieces 0 to 45, got 99"),
        (("compose", "run", "-o", "a.wav"), "the output must be a .mid file, got a.wav"),
        (("compose", "nowhere"), "nowhere: is not a run's folder, it has no config.toml"),
        (("export", "run", "-o", "run"), "run is there already; choose another name"),
    ],
)
def test_mistakes_are_named_in_one_line(command, chorale_run, arguments, message):
    code, output = command(*arguments)
    assert code == 1
    assert message in output
    assert len(output.splitlines()) == 1


def test_a_piece_is_kept_unless_force_is_given(command, chorale_run, tmp_path):
    (tmp_path / "chorale.wav").write_text("mine")
    code, output = command("compose", chorale_run, "--bars", "1")
    assert (code, output) == (
        1,
        "error: chorale.wav is there already; choose another name, or replace it by --force\n",
    )
    assert (tmp_path / "chorale.wav").read_text() == "mine"
    assert command("compose", chorale_run, "--bars", "1", "--force")[0] == 0
    assert (tmp_path / "chorale.wav").stat().st_size > 10_000


def test_names_and_prompts_are_shown_as_they_are(command, chorale_run):
    assert ":dog:.mid" in command("compose", chorale_run, "--bars", "1", "-o", ":dog:.mid")[1]


def test_what_a_model_writes_steers_no_terminal():
    assert shown("a\x1b]0;title\x07 b\nc\td\x9b") == "a]0;title b\nc\td"


def test_a_run_that_has_not_ended_is_used_and_said_to_be_so(command, chorale_run, tmp_path):
    (tmp_path / "run" / "result.json").unlink()
    code, output = command("compose", chorale_run, "--bars", "1")
    assert code == 0
    assert "run: the run has not ended; these are its best weights so far, after epoch 2" in output
