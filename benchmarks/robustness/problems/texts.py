"""Texts: sentiment of reviews, tags of words, and the next character."""

from functools import partial

import numpy as np
import torch
from torch import Generator, Tensor

from benchmarks.robustness.models import SequenceModel
from benchmarks.robustness.problem import CROSS_ENTROPY, Batch, Problem, Source, stored
from rru import data

REVIEW_WORDS, REVIEW_VOCABULARY = 80, 1_500
TAGGED_WORDS, TAGGED_VOCABULARY = 32, 1_000
REMOVED = ("the", "of", "to", "a", "in", "and", "'s", "that", "for")  # the most frequent words of the Treebank
CHARACTERS, SHAKESPEARE_CHARACTERS = 64, 65
VALID = 1_000


def reviews() -> Source:
    """Return the last words of IMDB's reviews (T, B), padded in front, and whether they are positive (B,)."""
    imdb = data.load("imdb")
    train, labels = _ends(imdb.train, range(len(imdb.train)))
    valid, valid_labels = _ends(imdb.valid, range(0, len(imdb.valid), len(imdb.valid) // VALID))
    return stored(train, labels, valid, valid_labels)


def _ends(split: data.LabelledTexts, chosen: range) -> tuple[Tensor, Tensor]:
    tokens = np.zeros((REVIEW_WORDS, len(chosen)), np.int64)  # 0 pads, 1 is unknown, frequent words come first
    for column, index in enumerate(chosen):
        end = split[index][0][-REVIEW_WORDS:]
        tokens[len(tokens) - len(end) :, column] = np.where(end < REVIEW_VOCABULARY, end, 1)
    return torch.from_numpy(tokens), torch.from_numpy(split.labels[list(chosen)].astype(np.int64))


def removed_words() -> Source:
    """Return Treebank words without the most frequent ones (T, B), and which of these was before each (T, B), or none.

    As in restoring punctuation, the words on both sides tell.
    """
    text = data.load("ptb-words", line_ends=True)
    train, valid = (_without_frequent(split, text.vocabulary) for split in (text.train, text.valid))
    starts = torch.arange(0, len(valid[0]) - TAGGED_WORDS, TAGGED_WORDS)[:VALID]
    return Source(partial(_windows, train), [_cut(valid, part) for part in starts.chunk(4)])


def _without_frequent(tokens: np.ndarray, vocabulary: data.Vocabulary) -> tuple[Tensor, Tensor]:
    """Return the other words, and labels: 0 if no frequent word was removed before a word, else its number."""
    label_of = np.zeros(len(vocabulary.tokens), np.int64)
    label_of[[vocabulary.ids[word] for word in REMOVED]] = np.arange(1, len(REMOVED) + 1)
    labels = label_of[tokens]
    before = np.concatenate([[0], labels[:-1]])
    others = tokens[labels == 0].astype(np.int64)
    words = np.where(others < TAGGED_VOCABULARY, others, vocabulary.unknown)  # frequent words come first
    return torch.from_numpy(words), torch.from_numpy(before[labels == 0])


def shakespeare() -> Source:
    """Return characters of tiny Shakespeare (T, B), and the next ones (T, B). The last tenth is for validation."""
    text = (data.data_dir() / "text" / "tinyshakespeare.txt").read_text(encoding="utf-8")
    alphabet = {character: index for index, character in enumerate(sorted(set(text)))}
    tokens = torch.tensor([alphabet[character] for character in text])
    split = len(tokens) * 9 // 10
    train, valid = ((part[:-1], part[1:]) for part in (tokens[:split], tokens[split:]))
    starts = torch.arange(0, len(valid[0]) - CHARACTERS, len(valid[0]) // 512)[:512]
    return Source(
        partial(_windows, train, length=CHARACTERS), [_cut(valid, part, CHARACTERS) for part in starts.chunk(4)]
    )


def _windows(text: Batch, size: int, generator: Generator, length: int = TAGGED_WORDS) -> Batch:
    return _cut(text, torch.randint(len(text[0]) - length, (size,), generator=generator), length)


def _cut(text: Batch, starts: Tensor, length: int = TAGGED_WORDS) -> Batch:
    """Cut windows (T, B) of inputs and targets from a text."""
    at = starts + torch.arange(length)[:, None]
    return text[0][at], text[1][at]


PROBLEMS = (
    Problem(
        "imdb",
        f"whether a review is positive, from the final state after its last {REVIEW_WORDS} words",
        reviews,
        partial(SequenceModel, features=32, outputs=2, tokens=REVIEW_VOCABULARY, from_state=True),
        CROSS_ENTROPY,
        budget=100_000,
        steps=500,
    ),
    Problem(
        "tagger",
        f"which of {len(REMOVED)} frequent words was removed before each of {TAGGED_WORDS} words, in both directions",
        removed_words,
        partial(SequenceModel, features=16, outputs=len(REMOVED) + 1, tokens=TAGGED_VOCABULARY, bidirectional=True),
        CROSS_ENTROPY,
        budget=30_000,
        steps=800,
    ),
    Problem(
        "shakespeare",
        f"the next character of tiny Shakespeare, at each of {CHARACTERS}",
        shakespeare,
        partial(SequenceModel, features=16, outputs=SHAKESPEARE_CHARACTERS, tokens=SHAKESPEARE_CHARACTERS),
        CROSS_ENTROPY,
        budget=25_000,
        steps=600,
    ),
)
