"""Classify texts, images and sequences of numbers with a trained model."""

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rru.data import DataError, permutation
from rru.data.own.making import TABLES
from rru.data.own.sequences import scaled, sequence_columns, sequences_in
from rru.data.own.table import Table, read_table
from rru.data.reviews import words_of
from rru.data.streams import read_file
from rru.extras import extra
from rru.inference.trained import Trained

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

FILE_LIMIT = 1 << 24  # bytes
PIXEL_LIMIT = 1 << 24
SIDE = 28
CLASSIFIED = ("reviews", "images", "texts", "sequences")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM")


def classify(trained: Trained, path: Path) -> dict[str, float]:
    """Classify a file. Returns the probability of each class, highest first.

    **Arguments:**

    - `trained`: a model trained on texts with labels, or images.
    - `path`: a UTF-8 text file, or an image of a digit (PNG, JPEG, BMP, GIF or PPM). Images are converted to grey,
      resized to 28 x 28 and inverted if they are dark on light.

    **Raises:** `DataError` if the file cannot be read.
    """
    (chances,) = classify_all(trained, path).values()
    return chances


def classify_all(trained: Trained, path: Path) -> dict[str, dict[str, float]]:
    """Classify everything in a file. Returns the probability of each class, highest first, by the name of each item.

    A text or an image is one item, without a name. A table has an item for each row, named by its number, or for each
    sequence: it needs the columns that the model was trained on.

    **Arguments:** see `classify`.
    """
    trained.check_kind(*CLASSIFIED, to="classify")
    own = trained.config.data
    if own is None or path.suffix.lower() not in TABLES:
        if trained.kind == "sequences":
            raise DataError(path, f"must be a table with the columns that the run was trained on, one of {TABLES}")
        content = read_file(path, FILE_LIMIT)
        inputs = _pixels(trained, path, content) if trained.kind == "images" else _words(trained, path, content)
        return {"": _chances(trained, inputs)}
    table = read_table(path, least=1)
    if trained.kind == "texts":
        if own.text is None:
            raise DataError(path, "must be a text file: the run was trained on a folder of texts")
        texts = enumerate(table[own.text].texts(), 1)
        return {
            f"row {row}": _chances(trained, _ids(trained, words)) for row, text in texts if (words := words_of(text))
        }
    options = {name: value for name, value in own.own.options.items() if name != "label"}
    columns = sequence_columns(table, options | {"columns": own.columns or _listed(trained, table)})
    return {
        name if own.sequence else f"row {name}": _chances(trained, _values(trained, values))
        for name, values, _ in sequences_in(table, options, columns)
        if len(values)
    }


def _listed(trained: Trained, table: Table) -> str:
    """Returns the columns to read: those that the model was trained on; of a wide table, all but texts."""
    own = trained.config.data
    if own is not None and own.sequence is None:
        kinds = ("number", "empty")
        return ",".join(column.name for column in table if column.kind in kinds and column.name != own.label)
    return ",".join(map(str, trained.about.get("columns", [])))


def _values(trained: Trained, values: NDArray[np.float64]) -> Tensor:
    """Returns the last `context` steps of a sequence, scaled, (T, 1, columns)."""
    return torch.from_numpy(scaled(values, trained.about["scale"])[-trained.config.task.context :])[:, None]


def _chances(trained: Trained, inputs: Tensor) -> dict[str, float]:
    with torch.no_grad():
        logits, _ = trained.model(inputs)  # (1, classes)
    return ranked(trained, trained.checked(logits[0]))


def ranked(trained: Trained, logits: Tensor) -> dict[str, float]:
    """Returns the probability of each class, highest first, from logits (classes,)."""
    names = {"reviews": ["negative", "positive"], "images": [str(digit) for digit in range(10)]}.get(trained.kind)
    names = names or [str(name) for name in trained.about["classes"]]
    probabilities = torch.softmax(logits, dim=-1).tolist()
    return dict(sorted(zip(names, probabilities, strict=True), key=lambda pair: -pair[1]))


def _words(trained: Trained, path: Path, content: bytes) -> Tensor:
    """Returns the token ids of the last `context` words of a text, (T, 1)."""
    try:
        words = words_of(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(path, f"must be UTF-8 text ({error.reason} at byte {error.start})") from error
    if not words:
        raise DataError(path, "must have at least one word, got none")
    return _ids(trained, words)


def _ids(trained: Trained, words: list[str]) -> Tensor:
    assert trained.vocabulary is not None
    ids = trained.vocabulary.numbers(words[-trained.config.task.context :])
    return torch.from_numpy(ids.astype(np.int64))[:, None]


def _pixels(trained: Trained, path: Path, content: bytes) -> Tensor:
    """Returns the pixels of an image as a sequence, (784, 1, 1), from 0 to 1."""
    with extra("train"):
        from PIL import Image, UnidentifiedImageError
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # PIXEL_LIMIT is lower
            image = Image.open(io.BytesIO(content), formats=FORMATS)
        if image.width * image.height > PIXEL_LIMIT:
            raise DataError(path, f"must have at most {PIXEL_LIMIT} pixels, got {image.width * image.height}")
        grey = _grey(image)
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(path, f"is not a valid image: must be one of {', '.join(FORMATS)}") from error
    except Exception as error:  # damaged images can raise anything in Pillow
        raise DataError(path, f"is not a valid image ({type(error).__name__}: {error})") from error
    if grey.size != (SIDE, SIDE):
        grey = grey.resize((SIDE, SIDE), Image.Resampling.BOX)
    pixels = np.asarray(grey, np.float32).reshape(-1) / 255
    border = np.asarray(grey)[[0, -1]].mean() / 255
    if border > 0.5:
        pixels = 1 - pixels
    order = permutation() if trained.task == "pmnist" else np.arange(SIDE * SIDE)
    return torch.from_numpy(pixels[order])[:, None, None]


def _grey(image: "Picture") -> "Picture":
    """Converts an image to 8-bit grey. Transparent parts become white, or black if the drawing is light."""
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip to 255
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if not image.has_transparency_data:
        return image.convert("L")
    grey, alpha = np.moveaxis(np.asarray(image.convert("RGBA").convert("LA"), np.float64), -1, 0)
    background = 0 if (grey * alpha).sum() > 127 * alpha.sum() else 255
    return Image.fromarray(((grey * alpha + background * (255 - alpha)) / 255).astype(np.uint8))
