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
    return load(untrained_run("imdb", "gru", Vocabulary.of(["a", "good", "bad", "film"], "words")))


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
    (tmp_path / "a.txt").write_text("a bad film")
    assert classify(reviews, tmp_path / "a.txt") != pytest.approx(found)


@pytest.fixture
def heard(digits, monkeypatch):
    """The pixels, 28 x 28, that the model was given last; one without training answers all pictures alike."""
    pixels, forward = np.zeros((28, 28), np.float32), digits.model.forward

    def listen(inputs):
        assert inputs.shape == (784, 1, 1)
        pixels[:] = inputs.reshape(28, 28)
        return forward(inputs)

    monkeypatch.setattr(digits.model, "forward", listen)
    return pixels


def test_a_picture_of_any_size_mode_and_polarity(digits, heard, stroke, tmp_path):
    Image.fromarray(stroke).save(tmp_path / "a.png")
    assert sum(classify(digits, tmp_path / "a.png").values()) == pytest.approx(1)
    assert heard == pytest.approx(stroke / 255)
    Image.fromarray(255 - stroke).resize((56, 56), Image.Resampling.NEAREST).convert("RGB").save(tmp_path / "b.png")
    heard[:] = 0
    classify(digits, tmp_path / "b.png")
    assert heard == pytest.approx(stroke / 255, abs=1e-6)


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
def test_the_same_picture_in_another_form(digits, heard, stroke, tmp_path, made):
    made(stroke).save(tmp_path / "a.png")
    classify(digits, tmp_path / "a.png")
    assert heard == pytest.approx(stroke / 255, abs=1e-6)


def test_permuted_pixels(untrained_run, tmp_path):
    permuted = load(untrained_run("pmnist"))
    pixels = np.arange(784, dtype=np.uint8).reshape(28, 28) // 2
    Image.fromarray(pixels).save(tmp_path / "a.png")
    given = []
    permuted.model.register_forward_pre_hook(lambda model, inputs: given.append(inputs[0]))
    classify(permuted, tmp_path / "a.png")
    assert given[0][:, 0, 0].numpy() == pytest.approx(pixels.reshape(-1)[permutation()] / np.float32(255))


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
