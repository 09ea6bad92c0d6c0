"""Classifying texts and images."""

import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from rru.data import DataError, permutation
from rru.data.vocabulary import Vocabulary
from rru.inference import classify, load


@pytest.fixture(scope="module")
def reviews(untrained_run):
    return load(untrained_run("imdb", "gru", Vocabulary.of(["a", "good", "bad", "film"], "words")))


@pytest.fixture(scope="module")
def digits(untrained_run):
    return load(untrained_run("mnist"))


def test_text(reviews, tmp_path):
    (tmp_path / "a.txt").write_text("A GOOD film,<br />a good film!")
    found = classify(reviews, tmp_path / "a.txt")
    numbers = reviews.vocabulary.numbers(["a", "good", "film", "a", "good", "film"]).astype("int64")
    with torch.no_grad():
        expected = torch.softmax(reviews.model(torch.from_numpy(numbers)[:, None])[0][0], -1).tolist()
    assert found == pytest.approx(dict(zip(["negative", "positive"], expected, strict=True)))
    assert list(found.values()) == sorted(found.values(), reverse=True)
    (tmp_path / "a.txt").write_text("a bad film")
    assert classify(reviews, tmp_path / "a.txt") != pytest.approx(found)


@pytest.fixture
def received(digits, monkeypatch):
    """The last input of the model, 28 x 28. (An untrained model gives the same answer for all images.)"""
    pixels, forward = np.zeros((28, 28), np.float32), digits.model.forward

    def record(inputs):
        assert inputs.shape == (784, 1, 1)
        pixels[:] = inputs.reshape(28, 28)
        return forward(inputs)

    monkeypatch.setattr(digits.model, "forward", record)
    return pixels


def test_image_of_any_size_mode_and_polarity(digits, received, stroke, tmp_path):
    Image.fromarray(stroke).save(tmp_path / "a.png")
    assert sum(classify(digits, tmp_path / "a.png").values()) == pytest.approx(1)
    assert received == pytest.approx(stroke / 255)
    Image.fromarray(255 - stroke).resize((56, 56), Image.Resampling.NEAREST).convert("RGB").save(tmp_path / "b.png")
    received[:] = 0
    classify(digits, tmp_path / "b.png")
    assert received == pytest.approx(stroke / 255, abs=1e-6)


@pytest.fixture
def stroke():
    image = np.zeros((28, 28), np.uint8)
    image[6:22, 13:15] = 200
    image[6:9, 10:15] = 90
    return image


def ink(value, alpha):
    """An image of one colour with the given alpha channel."""
    return Image.fromarray(np.stack([np.full_like(alpha, value)] * 3 + [alpha], -1))


@pytest.mark.parametrize(
    "made",
    [
        lambda pixels: Image.fromarray(pixels.astype(np.uint16) * 257),
        lambda pixels: Image.fromarray(pixels).convert("P"),
        lambda pixels: ink(0, pixels),
        lambda pixels: ink(255, pixels),
    ],
    ids=["16 bits", "palette", "black on transparent", "white on transparent"],
)
def test_same_image_in_another_mode(digits, received, stroke, tmp_path, made):
    made(stroke).save(tmp_path / "a.png")
    classify(digits, tmp_path / "a.png")
    assert received == pytest.approx(stroke / 255, abs=1e-6)


def test_pixels_are_permuted_for_pmnist(untrained_run, tmp_path):
    permuted = load(untrained_run("pmnist"))
    pixels = np.arange(784, dtype=np.uint8).reshape(28, 28) // 2
    Image.fromarray(pixels).save(tmp_path / "a.png")
    given = []
    permuted.model.register_forward_pre_hook(lambda model, inputs: given.append(inputs[0]))
    classify(permuted, tmp_path / "a.png")
    assert given[0][:, 0, 0].numpy() == pytest.approx(pixels.reshape(-1)[permutation()] / np.float32(255))


def _png_header(side):
    """A PNG that declares `side` x `side` pixels and has none."""
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    checksum = struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + checksum + bytes(4) + b"IDAT"


def test_invalid_text_and_images(reviews, digits, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="must be UTF-8 text"):
        classify(reviews, tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("...")
    with pytest.raises(DataError, match="must have at least one word"):
        classify(reviews, tmp_path / "a.txt")
    with pytest.raises(DataError, match="is not a valid image"):
        classify(digits, tmp_path / "a.txt")
    for side in (9600, 20000):  # Pillow warns about the first and rejects the second
        (tmp_path / "bomb.png").write_bytes(_png_header(side))
        with pytest.raises(DataError, match="pixels"):
            classify(digits, tmp_path / "bomb.png")
