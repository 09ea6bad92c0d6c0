"""What a classifier makes of texts and pictures."""

import numpy as np
import pytest
import torch
from PIL import Image

from rru.data import DataError, permutation
from rru.data.vocabulary import Vocabulary
from rru.generate import classify, load


@pytest.fixture(scope="module")
def reviews(untrained_run):
    return load(untrained_run("imdb", vocabulary=Vocabulary.of(["a", "good", "bad", "film"], "words")))


@pytest.fixture(scope="module")
def digits(untrained_run):
    return load(untrained_run("mnist"))


def test_a_text(reviews, tmp_path):
    (tmp_path / "a.txt").write_text("A GOOD film,<br />a good film!")
    found = classify(reviews, tmp_path / "a.txt")
    numbers = reviews.vocabulary.numbers(["a", "good", "film", "a", "good", "film"]).astype("int64")
    with torch.no_grad():
        expected = torch.softmax(reviews.model(torch.from_numpy(numbers)[:, None])[0][0], -1).tolist()
    assert found == pytest.approx(dict(zip(["negative", "positive"], expected, strict=True)))
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_a_picture_of_any_size_mode_and_polarity(digits, tmp_path):
    image = np.zeros((28, 28), np.uint8)
    image[6:22, 13:15] = 255
    Image.fromarray(image).save(tmp_path / "one.png")
    expected = classify(digits, tmp_path / "one.png")
    assert sum(expected.values()) == pytest.approx(1)
    Image.fromarray(255 - image).resize((56, 56), Image.Resampling.NEAREST).convert("RGB").save(tmp_path / "b.png")
    assert classify(digits, tmp_path / "b.png") == pytest.approx(expected, abs=1e-5)


@pytest.fixture
def stroke():
    image = np.zeros((28, 28), np.uint8)
    image[6:22, 13:15] = 200
    image[6:9, 10:15] = 90
    return image


def ink(value, alpha):
    """A picture all of one ink, as thick as `alpha` says."""
    return Image.fromarray(np.stack([np.full_like(alpha, value)] * 3 + [alpha], -1))


@pytest.mark.parametrize(
    "made",
    [
        lambda pixels: Image.fromarray(pixels.astype(np.uint16) * 257),
        lambda pixels: Image.fromarray(pixels).convert("P"),
        lambda pixels: ink(0, pixels),
        lambda pixels: ink(255, pixels),
    ],
    ids=["16 bits", "palette", "black on nothing", "white on nothing"],
)
def test_the_same_picture_in_another_form(digits, stroke, tmp_path, made):
    with torch.no_grad():
        logits = digits.model(torch.from_numpy(stroke.reshape(-1, 1, 1) / np.float32(255)))[0][0]
    made(stroke).save(tmp_path / "a.png")
    found = classify(digits, tmp_path / "a.png")
    assert [found[str(i)] for i in range(10)] == pytest.approx(torch.softmax(logits, -1).tolist(), abs=1e-6)


def test_permuted_pixels(untrained_run, tmp_path):
    permuted = load(untrained_run("pmnist"))
    pixels = np.arange(784, dtype=np.uint8).reshape(28, 28) // 2
    Image.fromarray(pixels).save(tmp_path / "a.png")
    inputs = torch.from_numpy(pixels.reshape(-1)[permutation()] / np.float32(255))[:, None, None]
    with torch.no_grad():
        expected = torch.softmax(permuted.model(inputs)[0][0], -1)
    assert classify(permuted, tmp_path / "a.png")["3"] == pytest.approx(float(expected[3]), abs=1e-5)


def test_what_is_no_text_and_no_picture(reviews, digits, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="must be text in UTF-8"):
        classify(reviews, tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("...")
    with pytest.raises(DataError, match="must hold at least one word"):
        classify(reviews, tmp_path / "a.txt")
    with pytest.raises(DataError, match="is not a picture that can be read"):
        classify(digits, tmp_path / "a.txt")
    for side in (9600, 20000):  # where Pillow warns, and where it refuses
        Image.new("1", (side, side)).save(tmp_path / "bomb.png")
        with pytest.raises(DataError, match="pixels"):
            classify(digits, tmp_path / "bomb.png")
