"""Errors about runs."""

from rru.files import FileError


class RunError(FileError):
    """A run cannot start, resume or be used. The message names it, says what is wrong and how to fix it."""
