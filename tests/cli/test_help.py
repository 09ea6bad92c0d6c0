"""The help of every command."""

import pytest
from rich.text import Text
from typer.testing import CliRunner

from rru.cli.commands import MODULES, app, loaded


def commands():
    """Yield every command with the words that call it."""
    for name in [name for modules in MODULES.values() for name in modules]:
        command = loaded(name)
        yield (name,), command
        for below, each in getattr(command, "commands", {}).items():
            yield (name, below), each


@pytest.mark.parametrize(("words", "command"), [pytest.param(*pair, id=" ".join(pair[0])) for pair in commands()])
def test_help_of_every_command_is_complete(words, command):
    texts = {words[-1]: command.help} | {param.name: param.help for param in command.params}
    for name, text in texts.items():
        assert text, f"{name} has no help"
        assert Text.from_markup(text).plain == text.replace("\\[", "["), "rich takes brackets as markup"
        assert all("\n" not in paragraph.strip() for paragraph in text.split("\n\n"))
    assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0
