"""Train in a folder that is removed afterwards: estimators leave no files behind."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rru.data.folder import cached_in
from rru.files import not_flushed


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder, which also holds the cache; nothing in it is forced to the disk."""
    with tempfile.TemporaryDirectory(prefix="rru-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with cached_in(folder / "cache"), not_flushed():
            yield folder
