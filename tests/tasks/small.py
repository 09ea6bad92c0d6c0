"""Small data sets made for tests, and models for them."""

import numpy as np
import pytest
import torch

from rru import data

CELLS = {
    "rru": {"output_size": 6, "expansion": 0.4, "relu_layers": 2},
    "gru": {},
    "lstm": {"forget_bias": 0.5},
    "mogrifier": {"rounds": 3, "rank": 2},
}


def piece(steps, seed=0):
    """A piano roll (steps, 88) without an empty step."""
    roll = (np.random.default_rng(seed).random((steps, 88)) < 0.05).astype(np.uint8)
    roll[:, 40] |= ~roll.any(axis=1)
    return roll


def music(train=(5, 9, 23, 30), valid=(4, 13, 21), test=(7, 2)):
    """Pieces of these lengths."""
    counts = iter(range(1000))
    return data.Music(*([piece(steps, next(counts)) for steps in split] for split in (train, valid, test)))


def text(train=400, valid=150, test=90, tokens=12, kind="words", line_ends=False):
    """Texts of so many tokens; the vocabulary has `tokens`, with padding and unknown."""
    names = [chr(ord("a") + number) for number in range(tokens - 2)]
    if line_ends:
        names[0] = "<eos>"
    generator = np.random.default_rng(0)
    splits = [generator.integers(2, tokens, length).astype(np.uint8) for length in (train, valid, test)]
    for split in splits:
        split.flags.writeable = False  # as memory-mapped ones are
    return data.Text(*splits, vocabulary=data.Vocabulary.of(names, kind))


def reviews(counts=(21, 8, 7), longest=30, tokens=12, empty=False):
    """Reviews of 1 to `longest` words, sorted by label."""
    generator = np.random.default_rng(0)
    splits = []
    for count in counts:
        lengths = generator.integers(1, longest + 1, count)
        lengths[0] = 0 if empty else longest
        offsets = np.cumsum([0, *lengths])
        words = generator.integers(2, tokens, offsets[-1]).astype(np.uint16)
        labels = (np.arange(count) >= count // 2).astype(np.uint8)
        splits.append(data.LabelledTexts(words, offsets, labels))
    names = [chr(ord("a") + number) for number in range(tokens - 2)]
    return data.Reviews(*splits, vocabulary=data.Vocabulary.of(names, "words"))


def images(counts=(10, 5, 4)):
    """Images of noise."""
    generator = np.random.default_rng(0)
    made = [(generator.integers(0, 256, (n, 28, 28)), generator.integers(0, 10, n)) for n in counts]
    return data.Images(*(data.LabelledImages(a.astype(np.uint8), b.astype(np.uint8)) for a, b in made))


def model_for(task, cell="gru", budget=12_000, dropout=0.0, double=True, **options):
    """A small model, by default in double precision, whose head and residual are not as dull as at the start."""
    torch.manual_seed(1)
    options = {"embedding_size": 4, **options} if hasattr(task, "vocabulary") else options
    model = task.model(cell, {"dropout": dropout, **CELLS[cell], **options}, budget)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(".Z") or "bias" in name:
                weight.uniform_(-0.5, 0.5)
    return model.double() if double else model


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return [None if weight.grad is None else weight.grad.clone() for weight in model.parameters()]


def same(batch, other):
    """Whether two batches hold the same."""
    for name in ("inputs", "targets", "lengths"):
        mine, theirs = getattr(batch, name), getattr(other, name)
        if (mine is None) != (theirs is None) or (mine is not None and not torch.equal(mine, theirs)):
            return False
    return (batch.fresh, batch.tokens) == (other.fresh, other.tokens)


def check_costs_of_windows(task, model):
    """Check that a batch of music costs the mean over its windows of what their steps cost on average."""
    batch = task.epoch(generator())[0]
    assert len(set(batch.lengths.tolist())) > 1
    means = []
    for column, length in enumerate(batch.lengths.tolist()):
        conditions, _ = model(batch.inputs[:length, column : column + 1])
        means.append(model.head.nats(conditions[:, 0], batch.targets[:length, column]).mean())
    assert task.loss(model, batch)[0].item() == pytest.approx(torch.stack(means).mean().item())
