"""Optional packages: without extras, pip installs what layers need; extras such as `rru[train]` add the rest."""

from collections.abc import Iterator
from contextlib import contextmanager


class MissingExtraError(ImportError):
    """A package of one of rru's extras is not installed; the message names the extra."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Name the extra to install if a package imported inside the block is missing.

    ```python
    with extra("train"):
        import mido
    ```
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "rru"):
            raise
        message = f"{package} is not installed; add it to this install: pip install 'rru[{name}]'"
        raise MissingExtraError(message, name=package) from error
