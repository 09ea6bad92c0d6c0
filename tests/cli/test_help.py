"""The help of every command."""

import shlex

import pytest
from typer.testing import CliRunner

from rru.cli.commands import MODULES, OLD_NAMES, app, loaded
from rru.cli.help import parts_of


def commands():
    """Yield every command with the words that call it."""
    for name in [name for modules in MODULES.values() for name in modules]:
        command = loaded(name)
        yield (name,), command
        for below, each in getattr(command, "commands", {}).items():
            yield (name, below), each


EACH = [pytest.param(*pair, id=" ".join(pair[0])) for pair in commands()]


def shown(*words):
    ran = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})
    assert ran.exit_code == 0, ran.output
    return ran.output


@pytest.mark.parametrize(("words", "command"), EACH)
def test_help_of_every_command_is_complete(words, command):
    for name, text in {words[-1]: command.help, **{param.name: param.help for param in command.params}}.items():
        assert text, f"{name} has no help"
    text = shown(*words)
    assert text.startswith(f"Usage: rru {' '.join(words)} ")
    for noise in ("<bool>", "<str>", "9223372036854775807", "\\["):
        assert noise not in text


@pytest.mark.parametrize(("words", "command"), [each for each in EACH if each.id != "report"])
def test_help_begins_with_examples_that_are_right(words, command):
    _, examples, _ = parts_of(command.help)
    assert examples
    for example in examples:
        program, *arguments = shlex.split(example.partition("<")[0])
        assert program == "rru"
        assert tuple(arguments[: len(words)]) == words or hasattr(command, "commands")
        if not hasattr(command, "commands"):
            command.make_context(words[-1], arguments[len(words) :])  # raises for an unknown option or a wrong value
    text = shown(*words)
    assert text.index("Examples:") < text.index("Options:")


def test_options_of_own_data_are_grouped_by_kind_and_shown_where_data_is_chosen():
    text = shown("train")
    groups = ("Your own text:", "Your own MIDI files:", "Your own series to forecast", "Your own texts or sequences")
    assert all(group in text for group in groups)
    assert text.index("Your own text:") < text.index("--tokenizer") < text.index("Your own MIDI files:")
    for name in ("run", "tune"):
        assert "--horizon" not in shown(name)


def test_old_names_work_but_are_not_listed():
    text = CliRunner().invoke(app, ["--help"]).output
    for name in OLD_NAMES:
        assert f"\n  {name} " not in text
        assert "Usage: rru" in shown(name)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("use",), "Missing argument 'RUN'. For example: rru use latest"),
        (("train",), "Missing argument 'FILE|TASK'. For example: rru train novel.txt"),
        (("export", "latest"), "For example: rru export latest -o model"),
        (("data", "fetch"), "For example: rru data fetch jsb"),
    ],
)
def test_errors_about_missing_arguments_have_an_example(words, said):
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 2
    assert said in ran.output


def test_only_options_that_the_help_lists_are_suggested():
    output = CliRunner().invoke(app, ["--hepl"]).output
    assert "--help" in output
    assert "--cells" not in output


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("train", "bach", "--epochs", "5"), "--epochs. It is a setting: --set epochs=5"),
        (("train", "bach", "--lr=0.01"), "--lr. It is a setting: --set lr=0.01"),
        (("train", "bach", "--batch-size", "--verbose"), "--batch-size. It is a setting: --set batch_size=VALUE"),
        (("run", "table1", "--forget-bias", "-1"), "--forget-bias. It is a setting: --set forget_bias=-1"),
        (("tune", "bach", "--budget", "2M"), "--budget. It is a setting: --set budget=2M"),
    ],
)
def test_an_unknown_option_that_is_a_setting_says_how_to_set_it(words, advice):
    ran = CliRunner().invoke(app, words, env={"TERMINAL_WIDTH": "100"})
    assert ran.exit_code == 2
    assert f"No such option: {advice} " in ran.output
    assert "Possible options" not in ran.output


@pytest.mark.parametrize("words", [("train", "bach", "--everything"), ("train", "bach", "--nosuch"), ("runs", "--lr")])
def test_other_unknown_options_are_no_settings(words):
    ran = CliRunner().invoke(app, words, env={"TERMINAL_WIDTH": "100"})
    assert ran.exit_code == 2
    assert f"No such option: {words[-1]}" in ran.output
    assert "--set" not in ran.output
