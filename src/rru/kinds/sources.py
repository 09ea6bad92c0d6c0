"""What a user gives to a trained model: a file, a table, or texts and arrays in memory."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rru.data.own.labels import Content, Items

Source = Any
"""A path, a DataFrame or dict of columns, one item, or several."""


def items_of(source: Source, dimensions: int) -> Iterator[tuple[str, Any]]:
    """Yield items in memory with their names: one item has none, several are `item 1`, `item 2`, ...

    **Arguments:** `source`: a text or array, or several; `dimensions`: those of the array of one item.
    """
    if isinstance(source, str) or getattr(source, "ndim", None) == dimensions:
        yield "", source
        return
    if not isinstance(source, Iterable):
        raise TypeError(f"items must be a file, a table, or texts or arrays; got {type(source).__name__}")
    for number, item in enumerate(source, 1):
        yield f"item {number}", item


def labelled(contents: list[Content], labels: Iterable[object] | None) -> Items[Content]:
    """Return items with labels that the user gave apart from them; raise ValueError if there is not one for each."""
    names = [] if labels is None else [_class_name(label) for label in labels]
    if len(names) != len(contents) or not names:
        raise ValueError(f"labels must have one for each of {len(contents):,} items, got {len(names):,}")
    return Items(contents, names)


def _class_name(label: Any) -> str:
    """Return a label as the name of a class: 5, 5.0 and "5" are the same."""
    return f"{label:.15g}" if isinstance(label, float | np.floating) else str(label)


def numbers_of(item: Any, shape: Sequence[int | None], what: str) -> NDArray[np.float64]:
    """Return an array of numbers; raise ValueError unless it has this shape, None for any length above 0."""
    try:
        array = np.asarray(item, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} must be an array of numbers ({error})") from error
    right = array.ndim == len(shape) and all(
        size > 0 if wanted is None else size == wanted for size, wanted in zip(array.shape, shape, strict=True)
    )
    if not right:
        wanted = ", ".join("steps" if size is None else str(size) for size in shape)
        raise ValueError(f"{what} must be an array of shape ({wanted}), got {array.shape}")
    return array
