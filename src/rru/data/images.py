"""MNIST images and labels. The last 10,000 training images are the validation split."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.folder import Found, Part
from rru.data.idx import read_idx
from rru.data.own.formats import Format
from rru.data.sets import Images, LabelledImages
from rru.data.streams import content_hash

VALID_IMAGES = 10_000


def prepare(files: Found, options: Mapping[str, bool]) -> Prepared:
    """Read images and labels."""
    arrays: dict[str, NDArray[np.uint8]] = {}
    for split, (images, labels) in {"train": files.parts[:2], "test": files.parts[2:]}.items():
        arrays[f"{split}_images"] = read_idx(images, (28, 28))
        arrays[f"{split}_labels"] = read_idx(labels, ())
        _check(images, labels, arrays[f"{split}_images"], arrays[f"{split}_labels"])
    if (count := len(arrays["train_labels"])) <= VALID_IMAGES:
        raise DataError(files.parts[0].path, f"must have more than {VALID_IMAGES} images to be split, got {count}")
    for part in files.parts if options["verify"] else ():
        expected = part.remote.content
        if expected and (got := content_hash(part, expected.partition(":")[0])) != expected:
            raise DataError(part.path, f"is not {part.remote.name}: hash of the content must be {expected}, got {got}")
    return Prepared(arrays, {})


def from_prepared(ready: Prepared) -> Images:
    """Build the data set from cached arrays."""
    images, labels = ready.arrays["train_images"], ready.arrays["train_labels"]
    return Images(
        train=LabelledImages(images[:-VALID_IMAGES], labels[:-VALID_IMAGES]),
        valid=LabelledImages(images[-VALID_IMAGES:], labels[-VALID_IMAGES:]),
        test=LabelledImages(ready.arrays["test_images"], ready.arrays["test_labels"]),
    )


def _check(images: Part, labels: Part, pixels: NDArray[np.uint8], digits: NDArray[np.uint8]) -> None:
    if len(pixels) != len(digits):
        raise DataError(labels.path, f"has {len(digits)} labels for the {len(pixels)} images in {images.path.name}")
    if len(digits) and digits.max() > 9:
        index = int(np.argmax(digits > 9))
        raise DataError(labels.path, f"labels must be 0 to 9, got {digits[index]}", f"offset {8 + index}")


FORMAT = Format("images", "images of digits", from_prepared, prepare_set=prepare)
