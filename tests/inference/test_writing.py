"""Writing text."""

import re

import pytest
import torch

from rru.data.vocabulary import Vocabulary
from rru.inference import load, unknown_tokens, write
from rru.training import RunError


@pytest.fixture(scope="module")
def words(untrained_run):
    return load(untrained_run("ptb-words", vocabulary=Vocabulary.of([f"word{i}" for i in range(60)], "words")))


@pytest.fixture(scope="module")
def bytes_model(untrained_run):
    return load(untrained_run("enwik8", vocabulary=Vocabulary.of([chr(i) for i in range(256)], "bytes")))


def test_text_has_the_given_length_and_words_of_the_vocabulary(words):
    pieces = list(write(words, "word1 word2", 30))
    assert len(pieces) == 30
    assert all(re.fullmatch(r" word\d+", piece) for piece in pieces)


def test_same_seed_gives_the_same_text(words):
    one, same, other = ("".join(write(words, "word1", 20, seed=seed)) for seed in (1, 1, 2))
    assert one == same != other


def test_text_is_generated_lazily(words, monkeypatch):
    calls = []
    forward = words.model.forward
    monkeypatch.setattr(words.model, "forward", lambda *a, **k: calls.append(1) or forward(*a, **k))
    pieces = write(words, "word1", 1000)
    assert not calls
    next(pieces)
    assert len(calls) == 1


def test_each_word_follows_from_the_whole_text_before_it(words):
    text = ("word1" + "".join(write(words, "word1", 12, top_k=1))).split()
    numbers = torch.tensor([words.vocabulary.ids[word] for word in text])[:, None]
    with torch.no_grad():
        logits = words.model(numbers)[0][:-1, 0]
    logits[:, [words.vocabulary.padding, words.vocabulary.unknown]] = -torch.inf
    assert logits.argmax(-1).tolist() == numbers[1:, 0].tolist()


def test_empty_prompt(words):
    assert len(list(write(words, "", 5))) == 5


def test_bytes_are_joined_to_whole_characters(bytes_model):
    text = "".join(write(bytes_model, "Zürich", 200))
    assert text
    assert text.encode("utf-8", "strict")


def test_unknown_tokens_of_a_prompt():
    vocabulary = Vocabulary.of(["the", "cat"], "words")
    assert unknown_tokens(vocabulary, "the dog the dog sat") == ["dog", "sat"]
    assert unknown_tokens(Vocabulary.of("abc_", "characters"), "a ßb") == ["ß"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length must be at least 1, got 0"),
        ({"length": 5, "temperature": -1}, "temperature must be from 0.01 to 100, got -1"),
        ({"length": 5, "temperature": 1e-50}, "temperature must be from 0.01 to 100, got 1e-50"),
        ({"length": 5, "top_k": 0}, "top_k must be at least 1, got 0"),
    ],
)
def test_bad_arguments(words, options, message):
    with pytest.raises(ValueError, match=message):
        write(words, "word1", **options)


@pytest.mark.parametrize("temperature", [0.01, 100])
def test_lowest_and_highest_temperature(words, temperature):
    assert len(list(write(words, "word1", 12, temperature=temperature))) == 12


def test_prompt_that_is_not_utf8(words):
    with pytest.raises(ValueError, match="prompt must be valid UTF-8, got"):
        write(words, "word1 \udcff", 5)


def test_vocabulary_without_words(untrained_run):
    with pytest.raises(RunError, match="the vocabulary must have a token besides padding and unknown"):
        write(load(untrained_run("ptb-words", vocabulary=Vocabulary.of([], "words"))), "", 5)


def test_run_of_another_task(trained):
    with pytest.raises(RunError, match=r"`write` needs a run of ptb-words, .*; this is a run of bach"):
        write(trained, "hello", 5)
