"""What a trained classifier makes of a text or an image."""

import io
import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from rru.data import DataError, permutation
from rru.data.reviews import words_of
from rru.data.streams import whole_file
from rru.generate.trained import Trained

FILE_LIMIT = 1 << 24  # bytes
PIXEL_LIMIT = 1 << 24
SIDE = 28
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM")


def classify(trained: Trained, path: Path) -> dict[str, float]:
    """The probability of each class, the likeliest first.

    **Arguments:**

    - `trained`: a model of reviews or images.
    - `path`: a text file, or a picture of a digit: any that Pillow reads is made grey and 28 x 28, and turned to light
      on dark if it is dark on light.
    """
    trained.check_kind("reviews", "images", to="classify")
    content = whole_file(path, FILE_LIMIT)
    if trained.kind == "reviews":
        names, inputs = ["negative", "positive"], _words(trained, path, content)
    else:
        names, inputs = [str(digit) for digit in range(10)], _pixels(trained, path, content)
    with torch.no_grad():
        logits, _ = trained.model(inputs)  # (1, classes)
    chances = torch.softmax(trained.checked(logits[0]), dim=-1).tolist()
    return dict(sorted(zip(names, chances, strict=True), key=lambda pair: -pair[1]))


def _words(trained: Trained, path: Path, content: bytes) -> Tensor:
    """The last words of a text, (T, 1)."""
    assert trained.vocabulary is not None
    try:
        words = words_of(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(path, f"must be text in UTF-8 ({error.reason} at byte {error.start})") from error
    if not words:
        raise DataError(path, "must hold at least one word, got none")
    numbers = trained.vocabulary.numbers(words[-trained.config["task"]["context"] :])
    return torch.from_numpy(numbers.astype(np.int64))[:, None]


def _pixels(trained: Trained, path: Path, content: bytes) -> Tensor:
    """A picture's pixels one after another, from 0 to 1, (784, 1, 1)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit here is lower
            image = Image.open(io.BytesIO(content), formats=FORMATS)
        if image.width * image.height > PIXEL_LIMIT:
            raise DataError(path, f"must have at most {PIXEL_LIMIT} pixels, has {image.width * image.height}")
        grey = _grey(image)
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(path, f"is not a picture that can be read: must be one of {', '.join(FORMATS)}") from error
    except Exception as error:  # Pillow lets those of its decoders through
        raise DataError(path, f"is not a picture that can be read ({type(error).__name__}: {error})") from error
    if grey.size != (SIDE, SIDE):
        grey = grey.resize((SIDE, SIDE), Image.Resampling.BOX)
    pixels = np.asarray(grey, np.float32).reshape(-1) / 255
    border = np.asarray(grey)[[0, -1]].mean() / 255
    if border > 0.5:
        pixels = 1 - pixels
    order = permutation() if trained.task == "pmnist" else np.arange(SIDE * SIDE)
    return torch.from_numpy(pixels[order])[:, None, None]


def _grey(image: Image.Image) -> Image.Image:
    """A picture in 256 shades; where it is transparent, paper is behind it: white, or black if light is drawn on it."""
    if image.mode.startswith("I"):  # 16 bits, of which Pillow would cut off the upper half
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if not image.has_transparency_data:
        return image.convert("L")
    light, cover = np.moveaxis(np.asarray(image.convert("RGBA").convert("LA"), np.float64), -1, 0)
    paper = 0 if (light * cover).sum() > 127 * cover.sum() else 255
    return Image.fromarray(((light * cover + paper * (255 - cover)) / 255).astype(np.uint8))
