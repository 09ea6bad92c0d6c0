"""Errors about files."""

from pathlib import Path


class FileError(Exception):
    """A file or folder cannot be used. The message names it, says what is wrong and how to fix it."""


class Damaged(FileError):  # noqa: N818 (the name says what is wrong)
    """A file is missing, or its content is not what was written."""


class Locked(FileError):  # noqa: N818
    """Another process holds the lock.

    **Arguments:** `path`: the lock file; `owner`: the id of the process that holds it, or `unknown`.
    """

    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(f"{path}: is locked by process {owner}; wait for it, or stop it")
        self.path, self.owner = path, owner

    def __reduce__(self) -> tuple[type["Locked"], tuple[Path, str]]:
        return type(self), (self.path, self.owner)


def cannot_write(path: Path, error: OSError) -> FileError:
    """Return the error to raise for a file or folder that could not be written."""
    return FileError(
        f"{path}: could not be written ({error.strerror or error}); the previous content is intact, "
        "so fix this and try again"
    )
