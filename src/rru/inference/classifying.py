"""Classify texts, images and sequences of numbers with a trained model."""

from pathlib import Path

import torch
from torch import Tensor

from rru.inference.trained import Trained
from rru.kinds import kind_of


def classify(trained: Trained, path: Path) -> dict[str, float]:
    """Classify a file. Return the probability of each class, highest first.

    **Arguments:**

    - `trained`: a model trained on texts with labels, or images.
    - `path`: a UTF-8 text file, or an image of a digit (PNG, JPEG, BMP, GIF or PPM). Images are converted to grey,
      resized to 28 x 28 and inverted if they are dark on light.

    **Raises:** `DataError` if the file cannot be read.
    """
    (chances,) = classify_all(trained, path).values()
    return chances


def classify_all(trained: Trained, path: Path) -> dict[str, dict[str, float]]:
    """Classify everything in a file. Return the probability of each class, highest first, by the name of each item.

    A text or an image is one item, without a name. A table has an item for each row, named by its number, or for each
    sequence: it needs the columns that the model was trained on.

    **Arguments:** see `classify`.
    """
    trained.check_command("classify")
    items = kind_of(trained.kind).items
    assert items is not None  # every kind that can be classified has it
    with torch.no_grad():
        logits = {name: trained.model(inputs)[0] for name, inputs in items(trained.trained_on, path)}  # (1, classes)
    return {name: ranked(trained, trained.checked(each[0])) for name, each in logits.items()}


def ranked(trained: Trained, logits: Tensor) -> dict[str, float]:
    """Return the probability of each class, highest first, from logits (classes,)."""
    names = kind_of(trained.kind).class_names(trained.facts)
    probabilities = torch.softmax(logits, dim=-1).tolist()
    return dict(sorted(zip(names, probabilities, strict=True), key=lambda pair: -pair[1]))
