"""Files that commands leave: whole, all of them, and never in place of something else unless that is wanted."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from rru.training import RunError
from rru.training.files import write_file


def check_free(paths: Iterable[Path], advice: str = "choose another name") -> None:
    """Raises if one of these is there already."""
    for path in paths:
        if path.exists() or path.is_symlink():
            raise ValueError(f"{path} is there already; {advice}")


def write_files(files: Mapping[Path, bytes]) -> None:
    """Writes or replaces files, each whole. Where one cannot be written, those that are new are removed again."""
    made: list[Path] = []
    try:
        for path, content in files.items():
            if not path.exists():
                made.append(path)
            with plainly(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_file(path, content)
    except BaseException:
        for path in made:
            with suppress(OSError):  # it was never made
                path.unlink()
        raise


@contextmanager
def plainly(path: Path) -> Iterator[None]:
    """Says what could not be written and why; what training says, to resume the run, would be wrong here."""
    try:
        yield
    except (OSError, RunError) as error:
        cause = error.__cause__ if isinstance(error, RunError) else error
        if not isinstance(cause, OSError):
            raise
        raise ValueError(f"{path}: could not be written ({cause.strerror or cause})") from error
