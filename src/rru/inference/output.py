"""Write the output files of commands: all or none, and overwriting only if asked to."""

import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rru.files import make_folder, write_file


def check_free(paths: Iterable[Path], advice: str = "choose another name") -> None:
    """Raise ValueError if one of the paths exists; `advice` ends the message."""
    for path in paths:
        if path.exists() or path.is_symlink():
            raise ValueError(f"{path} exists; {advice}")


def unused_paths(name: str, suffixes: Sequence[str], count: int = 1, *, force: bool = False) -> list[Path]:
    """Return paths in the current folder that no file has: `name.mid`, `name-2.mid`, `name-3.mid`, ...

    **Arguments:**

    - `name`: without suffix.
    - `suffixes`: of all the files that will be written; the first is that of the paths.
    - `count`: how many paths.
    - `force`: whether files may be overwritten; then the first names will do.
    """
    safe = re.sub(r"[^\w.-]+", "-", name).strip(".-") or "output"
    stems = itertools.chain([safe], (f"{safe}-{number}" for number in itertools.count(2)))
    free = (stem for stem in stems if force or not any(os.path.lexists(stem + suffix) for suffix in suffixes))
    return [Path(stem + suffixes[0]) for stem in itertools.islice(free, count)]


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write or replace files, each atomically. If one fails, remove the files that did not exist before."""
    made: list[Path] = []
    try:
        for path, content in files.items():
            if not path.exists():
                made.append(path)
            make_folder(path.parent)
            write_file(path, content)
    except BaseException:
        for path in made:
            with suppress(OSError):  # it was never written
                path.unlink()
        raise
