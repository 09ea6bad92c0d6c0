"""Images of digits, to classify: MNIST, read pixel by pixel."""

import io
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rru.data import SPLITS, DataError, Images, LabelledImages, images
from rru.data.own.data_json import Statistics
from rru.data.streams import read_file
from rru.extras import extra
from rru.kinds.kind import Card, Kind, TrainedOn, probable_classes
from rru.kinds.sources import Source, items_of, labelled, numbers_of
from rru.tasks import ImageTask, Recurrent, TaskSettings
from rru.tasks.classification import DIGITS, PIXELS, pixel_order

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

FILE_LIMIT = 1 << 24  # bytes
PIXEL_LIMIT = 1 << 24
SIDE = 28
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM")

DRAW = """image = np.zeros((28, 28), np.float32)
image[4:24, 13:16] = 1  # a digit, light on dark
inputs = image.reshape(784, 1, 1)
"""
PERMUTE = "inputs = inputs[np.random.RandomState(0).permutation(784)]\n"


def _card(trained: TrainedOn, model: Recurrent) -> Card:
    return Card(DRAW + PERMUTE * (trained.settings.name == "pmnist"), probable_classes("range(10)"))


def _steps(statistics: Statistics, split: int, settings: TaskSettings) -> float:
    return float(settings.limited(statistics["images"][split], SPLITS[split]) * PIXELS)


def _items(trained: TrainedOn, source: Source) -> Iterator[tuple[str, Tensor]]:
    """Yield the pixels of an image file or of arrays (28, 28) as sequences, (784, 1, 1), from 0 to 1."""
    given = [("", _grey_image(source))] if isinstance(source, Path) else items_of(source, 2)
    for name, image in given:
        pixels = _grey_levels(image) / 255
        if pixels[[0, -1]].mean() > 0.5:  # dark on light
            pixels = 1 - pixels
        inputs = pixels.astype(np.float32).reshape(-1)[pixel_order(trained.settings.name)]
        yield name, torch.from_numpy(inputs)[:, None, None]


def _grey_levels(image: object) -> NDArray[np.float64]:
    """Return an image as an array (28, 28) from 0 to 255."""
    levels = numbers_of(image, (SIDE, SIDE), "an image")
    if not 0 <= levels.min() <= levels.max() <= 255:
        raise ValueError(f"an image must have values from 0 to 255, got {levels.min():g} to {levels.max():g}")
    return levels


def _read(trained: TrainedOn, source: Source, labels: Iterable[object] | None) -> Images:
    """Read arrays (28, 28) from 0 to 255, light on dark, and their labels."""
    if labels is None or isinstance(source, Path):
        raise ValueError("images to evaluate on must be arrays (28, 28), given with labels: the digit of each")
    items = labelled([_grey_levels(image) for _, image in items_of(source, 2)], labels)
    part = LabelledImages(np.stack(items.contents).astype(np.uint8), items.indices(DIGITS).astype(np.uint8))
    return Images(part, part, part)


def _grey_image(path: Path) -> "Picture":
    """Read an image as 28 x 28 pixels of 8-bit grey."""
    with extra("train"):
        from PIL import Image, UnidentifiedImageError
    content = read_file(path, FILE_LIMIT)
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
    return grey if grey.size == (SIDE, SIDE) else grey.resize((SIDE, SIDE), Image.Resampling.BOX)


def _grey(image: "Picture") -> "Picture":
    """Convert an image to 8-bit grey. Transparent parts become white, or black if the drawing is light."""
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip to 255
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if not image.has_transparency_data:
        return image.convert("L")
    grey, alpha = np.moveaxis(np.asarray(image.convert("RGBA").convert("LA"), np.float64), -1, 0)
    background = 0 if (grey * alpha).sum() > 127 * alpha.sum() else 255
    return Image.fromarray(((grey * alpha + background * (255 - alpha)) / 255).astype(np.uint8))


IMAGES = Kind(
    format=images.FORMAT,
    task=ImageTask,
    noun="images",
    commands=("classify",),
    steps=_steps,
    inputs="(784, batch, 1) float32, pixels from 0 to 1; logits are of the ten digits",
    pipeline="image-classification",
    classes=DIGITS,
    items=_items,
    read=_read,
    figure="confusion matrix",
    page="digits",
    card_of=_card,
)
