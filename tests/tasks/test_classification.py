"""Classification: trimmed reviews, pixels, and where the head reads."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rru import data
from rru.tasks import ImageTask, ReviewTask
from rru.tasks.classification import macro_f1
from tests.tasks import small


def _review_task(reviews=None, **options):
    return ReviewTask.of("reviews", reviews or small.reviews(), **{"context": 12, "batch_size": 4, **options})


def test_an_epoch_has_the_last_words_of_every_review_once():
    reviews = small.reviews()
    made = []
    for batch in _review_task(reviews).epoch(small.generator()):
        for column, length in enumerate(batch.lengths.tolist()):
            made.append((batch.inputs[:length, column].tolist(), int(batch.targets[column])))
            assert (batch.inputs[length:, column] == reviews.vocabulary.padding).all()
    expected = [(reviews.train[number][0][-12:].tolist(), reviews.train[number][1]) for number in range(21)]
    assert sorted(made) == sorted(expected)


def test_a_review_without_words_is_one_unknown_word():
    task = _review_task(small.reviews(empty=True), batch_size=21)
    (batch,) = task.epoch(small.generator())
    column = batch.lengths.tolist().index(1)
    assert batch.inputs[0, column] == task.vocabulary.unknown


@pytest.mark.parametrize("cell", ["rru", "lstm"])  # a state of one part, and of two
def test_the_head_reads_the_last_layer_s_state_at_each_true_end(cell):
    task = _review_task()
    model = small.model_for(task, cell, num_layers=2).eval()
    batch = task.epoch(small.generator())[0]
    assert batch.lengths.min() < batch.lengths.max()
    logits, _ = model(batch.inputs, lengths=batch.lengths)
    for column, length in enumerate(batch.lengths):
        _, state = model.layers(model.embedding(batch.inputs[:length, column : column + 1]))
        h = state[0] if cell in ("lstm", "mogrifier") else state
        assert h.shape == (2, 1, model.layers.hidden_size)
        torch.testing.assert_close(logits[column], model.head(h[1, 0]))


@pytest.mark.parametrize("cell", ["rru", "lstm"])  # a state of one part, and of two
def test_padding_does_not_matter(cell):
    task = _review_task()
    model = small.model_for(task, cell, dropout=0.3)
    batch = task.epoch(small.generator())[0]
    padded = replace(batch, inputs=F.pad(batch.inputs, (0, 0, 0, 9), value=task.vocabulary.padding))
    with torch.no_grad():
        model.embedding.weight[task.vocabulary.padding] = torch.nan
    torch.manual_seed(5)
    loss = task.loss(model, batch)[0]
    expected = small.gradients(model, loss)
    torch.manual_seed(5)
    padded_loss = task.loss(model, padded)[0]
    torch.testing.assert_close(padded_loss, loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(small.gradients(model, padded_loss), expected, rtol=1e-9, atol=1e-12)
    assert not model.embedding.weight.grad[task.vocabulary.padding].any()
    assert loss.isfinite()


def test_loss_is_smoothed_and_accuracy_is_in_percent():
    reviews = small.reviews()
    task = _review_task(reviews)
    model = small.model_for(task).eval()
    right, losses = 0, []
    for number in range(len(reviews.valid)):
        words, label = reviews.valid[number]
        logits, _ = model(torch.tensor(words[-12:].astype(np.int64))[:, None])
        log_shares = torch.log_softmax(logits[0], dim=-1)
        right += int(logits[0].argmax() == label)
        losses.append(-(0.95 * log_shares[label] + 0.05 * log_shares[1 - label]).item())
    scores = task.evaluate(model, "valid")
    assert scores["accuracy"] == 100 * right / 8
    assert scores["loss"] == pytest.approx(sum(losses) / 8)
    assert (task.metric.key, task.metric.higher_is_better) == ("accuracy", True)


def test_limits_keep_both_labels():
    task = _review_task(limit=4, batch_size=4)
    (batch,) = task.epoch(small.generator())
    assert sorted(batch.targets.tolist()) == [0, 0, 1, 1]


@pytest.mark.parametrize("permuted", [False, True])
def test_images_are_784_steps_of_one_pixel(permuted):
    images = small.images()
    task = ImageTask.of("pmnist" if permuted else "mnist", images, batch_size=4)
    order = data.permutation() if permuted else range(784)
    seen = []
    for batch in task.epoch(small.generator()):
        assert batch.inputs.shape == (784, len(batch.targets), 1)
        seen += [
            (column.tolist(), int(label)) for column, label in zip(batch.inputs[..., 0].T, batch.targets, strict=True)
        ]
    pixels = images.train.images.reshape(-1, 784)
    expected = [
        ([float(np.float32(image[place]) / np.float32(255)) for place in order], int(label))
        for image, label in zip(pixels, images.train.labels, strict=True)
    ]
    assert sorted(seen) == sorted(expected)


def test_images_have_no_other_context_than_all_their_pixels():
    with pytest.raises(ValueError, match="context must be 784, the pixels of an image; got 100"):
        ImageTask.of("images", small.images(), context=100)


def test_macro_f1_is_the_mean_over_classes_that_are_there():
    confusion = np.array([[8, 2, 0], [4, 6, 0], [0, 0, 0]])
    first, second = 2 * 8 / (10 + 12), 2 * 6 / (10 + 8)
    assert macro_f1(confusion) == pytest.approx((first + second) / 2)


def test_ties_of_small_validation_splits_are_broken_by_the_loss_on_own_data_only():
    task = _review_task()
    same, lower = {"accuracy": 90.0, "loss": 0.5}, {"accuracy": 90.0, "loss": 0.4}
    assert not task.better(lower, same)
    task.breaks_ties = True
    assert task.better(lower, same)
    assert not task.better(same, lower)
    assert task.better({"accuracy": 91.0, "loss": 0.9}, same)
