"""Write the output files of commands: all or none, and overwriting only if asked to."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from rru.files import make_folder, write_file


def check_free(paths: Iterable[Path], advice: str = "choose another name") -> None:
    """Raise ValueError if one of the paths exists; `advice` ends the message."""
    for path in paths:
        if path.exists() or path.is_symlink():
            raise ValueError(f"{path} exists; {advice}")


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
