"""MNIST from idx files, compressed or not."""

import numpy as np
import pytest

from rru import data
from tests.data import samples

COUNT = 10_003


def _write(folder, packed, train=COUNT, separator="-"):
    images, labels = samples.digits(train)
    for stem, array in {
        "train-images": images,
        "train-labels": labels,
        "t10k-images": images[:5],
        "t10k-labels": labels[:5],
    }.items():
        name = f"{stem}{separator}idx{array.ndim}-ubyte"
        content = samples.idx_bytes(array)
        samples.write(folder, name + ".gz" if packed else name, samples.packed(content) if packed else content)
    return images, labels


@pytest.mark.parametrize(
    ("place", "packed", "separator"), [("", True, "-"), ("mnist", False, "-"), ("MNIST/raw", False, ".")]
)
def test_last_10_000_training_images_are_the_validation_split(place, packed, separator, tmp_path):
    images, labels = _write(tmp_path / place, packed, separator=separator)
    loaded = data.load("mnist", tmp_path, verify=False)
    np.testing.assert_array_equal(loaded.train.images, images[:3])
    np.testing.assert_array_equal(loaded.valid.images, images[3:])
    np.testing.assert_array_equal(loaded.valid.labels, labels[3:])
    np.testing.assert_array_equal(loaded.test.images, images[:5])
    assert len(loaded.valid) == 10_000


def test_permuted_mnist_has_the_same_images_and_a_fixed_permutation(tmp_path):
    images, _ = _write(tmp_path, packed=False)
    np.testing.assert_array_equal(data.load("pmnist", tmp_path, verify=False).train.images, images[:3])
    order = data.permutation()
    assert sorted(order) == list(range(784))
    assert order[:4].tolist() == np.random.RandomState(0).permutation(784)[:4].tolist()


def test_too_few_images_are_rejected(tmp_path):
    _write(tmp_path, packed=False, train=100)
    with pytest.raises(data.DataError, match="must have more than 10000 images to be split, got 100"):
        data.load("mnist", tmp_path, verify=False)


def test_label_out_of_range_is_rejected(tmp_path):
    _write(tmp_path, packed=False)
    samples.write(tmp_path, "t10k-labels-idx1-ubyte", samples.idx_bytes(np.array([1, 2, 3, 10, 4], np.uint8)))
    with pytest.raises(data.DataError, match=r"t10k-labels-idx1-ubyte, offset 11: labels must be 0 to 9, got 10"):
        data.load("mnist", tmp_path, verify=False)


def test_other_images_are_rejected(tmp_path):
    _write(tmp_path, packed=False)
    with pytest.raises(data.DataError, match=r"is not train-images-idx3-ubyte.gz: hash of the content must be"):
        data.load("mnist", tmp_path)
