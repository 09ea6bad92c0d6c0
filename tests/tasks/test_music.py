"""Music: windows, both averages, trimming."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rru import data
from rru.tasks import MusicTask
from rru.tasks.music import transposed
from tests.tasks import small


def _task(music=None, **options):
    return MusicTask.of("music", music or small.music(), **{"context": 10, "batch_size": 4, **options})


def _obvious_windows(pieces, context, stride):
    """Inputs and targets of every window, step by step."""
    found = []
    for piece in pieces:
        steps = [step for step in piece.tolist() if any(step)]
        start = 0
        while start + 1 < len(steps):
            inputs = steps[start : start + context]
            targets = steps[start + 1 : start + 1 + context]
            found.append((inputs[: len(targets)], targets))
            if start + context >= len(steps) - 1:
                break
            start += stride
    return found


def _windows_of(batch):
    return [
        (batch.inputs[:length, column].int().tolist(), batch.targets[:length, column].int().tolist())
        for column, length in enumerate(batch.lengths.tolist())
    ]


def test_an_epoch_has_every_window_once_at_half_stride():
    music = small.music()
    made = [window for batch in _task(music).epoch(small.generator()) for window in _windows_of(batch)]
    assert sorted(made) == sorted(_obvious_windows(music.train, 10, 5))


def test_empty_steps_are_left_out():
    roll = small.piece(9)
    gaps = np.insert(roll, [0, 3, 3, 9], 0, axis=0)
    with_gaps, without = (_task(data.Music([some], [some], [some])) for some in (gaps, roll))
    assert small.same(with_gaps.epoch(small.generator())[0], without.epoch(small.generator())[0])


def test_transposed_windows_have_the_same_intervals_and_stay_on_the_keys():
    roll = np.zeros((2, 88), np.uint8)
    roll[0, [1, 50]], roll[1, [4, 85]] = 1, 1
    assert [transposed(roll, by)[1].nonzero()[0].tolist() for by in (2, 5, -9)] == [[6, 87], [6, 87], [3, 84]]
    third = np.zeros((9, 88), np.uint8)
    third[:, [40, 44]] = 1
    task = _task(data.Music([third], [third], [third]), transposition=3)
    batches = [task.epoch(small.generator(seed))[0] for seed in range(40)]
    assert {tuple(batch.targets[-1, 0].nonzero()[:, 0].tolist()) for batch in batches} == {
        (40 + by, 44 + by) for by in range(-3, 4)
    }


def test_both_averages_by_hand():
    music = small.music(valid=(4, 13))
    task = _task(music)
    model = small.model_for(task)
    means, sums, steps = [], [], []
    for inputs, targets in _obvious_windows(music.valid, 10, 10):
        logits, _ = model.eval()(torch.tensor(inputs, dtype=torch.float64)[:, None])
        nats = 0.0
        for step, target in zip(logits[:, 0], targets, strict=True):
            for logit, on in zip(step.tolist(), target, strict=True):
                nats -= math.log(1 / (1 + math.exp(-logit if on else logit)))
        means.append(nats / len(targets))
        sums.append(nats)
        steps.append(len(targets))
    assert steps == [3, 10, 2]
    scores = task.evaluate(model, "valid")
    assert scores["nll"] == pytest.approx(sum(means) / 3)
    assert scores["nll_per_frame"] == pytest.approx(sum(sums) / 15)
    assert scores["nll"] != pytest.approx(scores["nll_per_frame"])
    assert scores["loss"] == scores["nll"]


def test_without_knowledge_every_key_costs_one_bit():
    task = _task()
    model = small.model_for(task)
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    assert task.evaluate(model, "test") == pytest.approx(
        dict.fromkeys(("nll", "nll_per_frame", "loss"), 88 * math.log(2))
    )
    assert task.loss(model, task.epoch(small.generator())[0])[0].item() == pytest.approx(88 * math.log(2))


def test_the_training_loss_averages_each_window_first():
    task = _task()
    model = small.model_for(task)
    batch = task.epoch(small.generator())[0]
    means = []
    for column, length in enumerate(batch.lengths.tolist()):
        logits, _ = model(batch.inputs[:length, column : column + 1])
        targets = batch.targets[:length, column : column + 1].double()
        means.append(F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(-1).mean())
    assert task.loss(model, batch)[0].item() == pytest.approx(torch.stack(means).mean().item())
    assert task.loss(model, batch)[1] is None


@pytest.mark.parametrize("cell", ["rru", "lstm"])  # a state of one part, and of two
def test_a_trimmed_batch_gives_the_loss_and_gradients_of_a_fully_padded_one(cell):
    task = _task(small.music(train=(5, 9, 7)), context=20)
    batch = task.epoch(small.generator())[0]
    extra = (0, 0, 0, 0, 0, 20 - len(batch.inputs))
    padded = replace(
        batch, inputs=F.pad(batch.inputs, extra, value=7.0), targets=F.pad(batch.targets, extra, value=1.0)
    )
    for column, length in enumerate(batch.lengths):
        padded.inputs[length:, column] = torch.nan
    model = small.model_for(task, cell, dropout=0.3)
    torch.manual_seed(5)
    trimmed_loss = task.loss(model, batch)[0]
    expected = small.gradients(model, trimmed_loss)
    torch.manual_seed(5)
    padded_loss = task.loss(model, padded)[0]
    torch.testing.assert_close(padded_loss, trimmed_loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(small.gradients(model, padded_loss), expected, rtol=1e-9, atol=1e-12)


def test_limits_take_the_first_pieces():
    task = _task(limit=2, evaluation_limit=1)
    (batch,) = task.epoch(small.generator())
    assert sorted(batch.lengths.tolist()) == [4, 8]
    music = small.music()
    one = _task(replace(music, valid=music.valid[:1]))
    model = small.model_for(task)
    assert task.evaluate(model, "valid") == one.evaluate(model, "valid")
    with pytest.raises(ValueError, match=r"^limit must be positive, got 0"):
        _task(limit=0)
    with pytest.raises(ValueError, match=r"^evaluation_limit must be positive, got -1"):
        _task(evaluation_limit=-1)


def test_a_split_without_a_window_is_refused():
    with pytest.raises(ValueError, match="music: test must have a piece with at least two non-empty steps, got none"):
        _task(small.music(test=(1,)))
