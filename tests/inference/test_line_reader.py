"""`rru stream`: a model reads line by line as it would read the whole."""

import math
import re

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rru.cli.commands import app
from rru.data.vocabulary import Vocabulary
from rru.inference import LineReader, load
from rru.settings import presets
from rru.training import RunError


@pytest.fixture(scope="module")
def words(untrained_run):
    return load(untrained_run("ptb-words", "rru", Vocabulary.of(["the", "cat", "sat"], "words")))


def test_text_read_line_by_line_takes_the_bits_of_the_whole(words):
    parts = [["the", "cat"], ["sat", "the", "dog"]]
    reader = LineReader(words)
    said = [reader.read(" ".join(part)) for part in parts]
    ids = torch.from_numpy(words.vocabulary.numbers([word for part in parts for word in part]).astype(np.int64))
    with torch.no_grad():
        chances = words.model(ids[:, None])[0][:, 0].log_softmax(-1)  # (5, tokens)
    nats = -chances[1:4].gather(1, ids[2:, None]).mean().item()  # of the second line
    assert said[1].startswith(f"{nats / math.log(2):.2f} bits per word; next ")
    assert reader.read(" \n") == ""


def test_a_new_sequence_begins_after_an_empty_line(untrained_run):
    trained = load(untrained_run("imdb", "gru", Vocabulary.of(["good", "bad"], "words")))
    with torch.no_grad():
        trained.model.head.weight *= 50  # so that small differences are seen
    reader = LineReader(trained)
    first = reader.read("good bad good")
    assert reader.read("bad bad") != first
    assert reader.read("\n") == ""
    assert reader.read("good bad good") == first


@pytest.fixture(scope="module")
def music(untrained_run):
    return load(untrained_run("bach", "rru", None, ["output=independent"]))


def test_notes_are_read_and_expected_by_their_midi_numbers(music):
    reader = LineReader(music)
    assert reader.read("60 64 67").startswith("next ")
    for wrong in ("C4", "20", "109", "-60"):
        with pytest.raises(ValueError, match="must have MIDI notes from 21 to 108"):
            reader.read(wrong)


def test_a_joint_output_expects_notes_as_often_as_it_samples_them(joint):
    reader = LineReader(joint)
    chord = torch.zeros(1, 1, 88)
    chord[0, 0, [39, 43, 46, 51]] = 1
    lines = [reader.read("60 64 67 72") for _ in range(3)]
    with torch.no_grad():
        conditions = joint.model(chord.repeat(3, 1, 1))[0][-1]
        often = joint.model.head.sample(conditions.expand(4000, -1), torch.Generator().manual_seed(1)).mean(0)
    expected = {int(note): int(chance) for note, chance in re.findall(r"(\d+) (\d+)%", lines[-1])}
    assert len(expected) > 3
    for key, chance in enumerate(often.tolist()):
        assert 100 * chance == pytest.approx(expected.get(21 + key, 2.5), abs=6)
    again = LineReader(joint)
    assert [again.read("60 64 67 72") for _ in range(3)] == lines


def test_runs_that_cannot_be_streamed_say_why(untrained_run):
    with pytest.raises(
        RunError,
        match=r"`stream` needs a run of .* or your own text or .*; this is a run of mnist: images, for `classify`",
    ):
        LineReader(load(untrained_run("mnist", "rru")))


def test_the_model_of_the_demo_is_streamed(untrained_run):
    config = presets.load("bach", "rru", "demo")
    run = untrained_run("bach", "rru", None, [f"output={config.task.output}"])
    ran = CliRunner().invoke(app, ["stream", str(run)], input="60 64 67\n\n62 65\n")
    assert (ran.exit_code, len(ran.stdout.splitlines())) == (0, 3)
    assert ran.stdout.startswith("next ")


def test_the_command_answers_each_line_and_names_a_wrong_one(words, music):
    ran = CliRunner().invoke(app, ["stream", str(words.path)], input="the cat\nsat\n")
    assert (ran.exit_code, len(ran.stdout.splitlines())) == (0, 2)
    ran = CliRunner().invoke(app, ["stream", str(music.path)], input="60\nsixty\n")
    assert ran.exit_code == 1
    assert "standard input, line 2: must have MIDI notes" in ran.output
