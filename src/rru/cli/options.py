"""Groups of options that several commands share."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import get_type_hints


def spread(
    command: Callable[..., None], argument: str, options: Iterable[inspect.Parameter], make: Callable[..., object]
) -> Callable[..., None]:
    """Return a command that takes options in place of one argument.

    **Arguments:**

    - `command`: the command.
    - `argument`: the name of the argument.
    - `options`: the options, with their annotations for typer.
    - `make`: called with the options by name; returns the argument's value.
    """
    added = {option.name: option for option in options}

    @functools.wraps(command)
    def wrapped(**arguments: object) -> None:
        values = {name: arguments.pop(name) for name in added}
        command(**{argument: make(**values)}, **arguments)

    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        parameters += added.values() if name == argument else [parameter.replace(annotation=hints[name])]
    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    wrapped.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in by_name}
    return wrapped
