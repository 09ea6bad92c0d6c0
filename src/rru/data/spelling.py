"""How messages name an option: `--target COLUMN` in a command, `target=COLUMN` in Python."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_in_command: ContextVar[bool] = ContextVar("rru_in_command", default=False)


@contextmanager
def command_spelling() -> Iterator[None]:
    """Name options as a command has them in the messages of errors raised inside the block."""
    before = _in_command.set(True)
    try:
        yield
    finally:
        _in_command.reset(before)


def in_command() -> bool:
    """Return whether a command runs, rather than a user's Python code."""
    return _in_command.get()


def flag(name: str) -> str:
    """Return an option without a value as the user writes it: `--force` in a command, `force=True` in Python."""
    return f"--{name.replace('_', '-')}" if in_command() else f"{name}=True"


def option(name: str, value: str = "") -> str:
    """Return an option as the user writes it.

    **Arguments:** `name`: as in Python; `value`: a value, or what to put there, in capitals; may be empty.
    """
    if in_command():
        return f"--{name.replace('_', '-')} {value}".strip()
    return f"{name}={value if value.isupper() else repr(value)}" if value else name
