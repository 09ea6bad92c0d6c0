"""Classify texts, images and sequences of numbers with a trained model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rru.kinds import kind_of
from rru.kinds.sources import Source

if TYPE_CHECKING:
    from rru.inference.trained import Trained


def classify(trained: Trained, source: Source) -> dict[str, float]:
    """Classify one item. Return the probability of each class, highest first.

    **Arguments:**

    - `trained`: a model trained on texts or sequences with labels, or on images.
    - `source`: a UTF-8 text file, or an image of a digit (PNG, JPEG, BMP, GIF or PPM). Images are converted to grey,
      resized to 28 x 28 and inverted if they are dark on light. Or what would be in the file: a text, or an array
      (T, columns) or (28, 28).

    **Raises:** `DataError` if the file cannot be read.
    """
    (chances,) = classify_all(trained, source).values()
    return chances


def classify_all(trained: Trained, source: Source) -> dict[str, dict[str, float]]:
    """Classify everything in a file, table or list. Return the probability of each class, highest first, by item.

    A text or an image is one item, without a name. A table has an item for each row, named by its number, or for each
    sequence: it needs the columns that the model was trained on. A list has `item 1`, `item 2`, ...

    **Arguments:** `source`: see `classify`; or a table (a file, a DataFrame or a dict of columns); or a list of texts
    or arrays. A string is the name of a file if there is one of this name, else a text; in a list it is always a text.
    """
    trained.check_command("classify")
    kind = kind_of(trained.kind)
    assert kind.items is not None  # every kind that can be classified has it
    items = kind.items(trained.trained_on, kind.source(source))
    with torch.no_grad():
        logits = {name: trained.model(inputs)[0] for name, inputs in items}  # (1, classes)
    return {name: ranked(trained, trained.checked(each[0])) for name, each in logits.items()}


def ranked(trained: Trained, logits: Tensor) -> dict[str, float]:
    """Return the probability of each class, highest first, from logits (classes,)."""
    names = kind_of(trained.kind).class_names(trained.facts)
    probabilities = torch.softmax(logits, dim=-1).tolist()
    return dict(sorted(zip(names, probabilities, strict=True), key=lambda pair: -pair[1]))
