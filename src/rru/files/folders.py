"""Walk folders that other processes may be changing. Follow no links."""

import os
from collections.abc import Callable, Container, Iterator
from pathlib import Path

from rru.files.errors import FileError

UNFINISHED = ".unfinished-"
"""How names of temporary files and folders begin. They may vanish at any time."""


def walk(
    root: Path, skip: Container[str] = (), unreadable: Callable[[Path, FileError], None] = lambda folder, error: None
) -> Iterator[tuple[Path, frozenset[str]]]:
    """Yield every folder below `root`, itself included, with the names in it, in the order of their paths.

    Skip links, temporary folders, and folders that vanish meanwhile.

    **Arguments:**

    - `root`: the folder to start from; may itself be a link.
    - `skip`: names of folders that are not walked into.
    - `unreadable`: called with each folder that must not be read, and the error.
    """
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            entries = _entries(folder)
        except PermissionError as error:
            unreadable(folder, FileError(f"{folder}: cannot be read ({error.strerror or error})"))
            continue
        except OSError:  # it was removed or replaced since its parent was read
            continue
        yield folder, frozenset(entries)
        below = [name for name, is_folder in entries.items() if is_folder and name not in skip]
        waiting += [folder / name for name in reversed(below)]


def files_in(folder: Path, *suffixes: str) -> list[Path]:
    """Return what is in a folder and whose names end in one of the suffixes, sorted; without folders.

    Empty if the folder does not exist or is a link. What it returns may be links; `read_file` refuses these.
    """
    try:
        entries = {} if folder.is_symlink() else _entries(folder)
    except OSError:
        return []
    return [folder / name for name, is_folder in entries.items() if not is_folder and name.endswith(suffixes)]


def _entries(folder: Path) -> dict[str, bool]:
    """Return whether each entry of a folder is itself a folder, by name, sorted; without temporary entries."""
    with os.scandir(folder) as scanned:
        entries = {entry.name: entry.is_dir(follow_symlinks=False) for entry in scanned}
    return {name: entries[name] for name in sorted(entries) if not name.startswith(UNFINISHED)}
