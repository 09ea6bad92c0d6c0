"""Language: text by characters, words or bytes, to predict and to write."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np

from rru.data import Text
from rru.data.own import text
from rru.data.own.data_json import Statistics
from rru.data.vocabulary import MARKED_WORDS
from rru.kinds import sizes
from rru.kinds.kind import Card, Kind, TrainedOn
from rru.kinds.sizes import Tables
from rru.kinds.sources import Source
from rru.tasks import LanguageTask, Recurrent, WordTask

INPUTS = "(steps, batch) int64, numbers of {} in vocabulary.json; logits are of the next {}"

TOKENS = {
    "words": "text.split()",
    "words and punctuation": f're.findall(r"{MARKED_WORDS}", text)',
    "characters": 'text.replace(" ", "_")',
    "code points": "text",
    "bytes": 'text.encode().decode("latin-1")',
}
"""How to divide a text into the tokens of a vocabulary of each kind; see `rru.data.vocabulary.tokens_of`."""
EMBEDDING, WORD_EMBEDDING, MAX_CONTEXT = 32, 64, 64
DROPOUT = ((0.05, 0.0), (0.5, 0.05), (1.0, 0.1), (2.0, 0.2), (4.0, 0.3), (0.0, 0.4))
"""Of characters and bytes, where there are fewer weights for each token of the text than the first number."""
READ = """import json
from pathlib import Path

vocabulary = json.loads(Path("vocabulary.json").read_text())
numbers = {token: number for number, token in enumerate(vocabulary["tokens"])}
text = "it was the best of"
tokens = TOKENS
inputs = np.array([[numbers.get(token, vocabulary["unknown"])] for token in tokens])  # (steps, 1)
"""
PROBABLE = """chances = np.exp(logits[-1, 0] - logits[-1, 0].max())
chances /= chances.sum()  # (tokens,), of the next one
for number in np.argsort(-chances)[:3]:
    print(f"{vocabulary['tokens'][number]!r}: {chances[number]:.0%}")
"""


def _card(trained: TrainedOn, model: Recurrent) -> Card:
    assert trained.vocabulary is not None  # every model of text has one
    read = READ.replace("TOKENS", TOKENS[trained.vocabulary.kind])
    return Card(f"import re\n{read}" if "re." in read else read, PROBABLE)


def _auto(statistics: Statistics, scale: float) -> Tables:
    tokens = statistics["tokens"][0]
    context, batch_size = _windows(tokens, 16)
    layers = _layers(tokens, scale, EMBEDDING)
    model = _model(statistics, layers, EMBEDDING, _dropout(layers / tokens))
    task = {"context": context, "batch_size": batch_size, "stateful": True, "evaluation_context": 512}
    return sizes.decaying(sizes.between(10_000_000 // max(tokens, 1), 5, 60), task, model)


def _auto_words(statistics: Statistics, scale: float) -> Tables:
    tokens = statistics["tokens"][0]
    context, batch_size = _windows(tokens, 16)
    dropout = sizes.by_size(tokens, (300_000, 0.5), (3_000_000, 0.4), (0, 0.1))
    model = _model(statistics, _layers(tokens, scale, WORD_EMBEDDING), WORD_EMBEDDING, dropout)
    task = {"context": context, "batch_size": batch_size, "stateful": True, "evaluation_context": 128}
    return sizes.decaying(sizes.between(10_000_000 // max(tokens, 1), 5, 60), task, model)


def _windows(tokens: int, max_batch: int) -> tuple[int, int]:
    """Return context and batch size."""
    context = sizes.power_of_two(tokens / (4 * sizes.MIN_BATCH), 8, MAX_CONTEXT)
    return context, sizes.power_of_two(tokens / context / sizes.BATCHES, sizes.MIN_BATCH, max_batch)


def _layers(tokens: int, scale: float, embedding: int) -> int:
    """Return the parameters of the recurrent layers."""
    return sizes.scaled(sizes.between(tokens // 4, 60_000, 4_000_000), scale, embedding)


def _model(statistics: Statistics, layers: int, embedding: int, dropout: float) -> dict[str, float]:
    outside = statistics["vocabulary"] * (embedding + sizes.OUTPUT_SIZE + 1)  # embedding and head
    return {"budget": sizes.rounded(layers, outside), "dropout": dropout, "embedding_size": embedding}


def _dropout(weights_per_token: float) -> float:
    """Return the dropout of layers that have so many weights for each token of their text."""
    return next((dropout for most, dropout in DROPOUT if weights_per_token < most), DROPOUT[-1][1])


def _smoke(statistics: Statistics) -> Tables:
    task = {"context": 16, "batch_size": 8, "limit": 2000, "evaluation_limit": 500}
    return {**sizes.smoke(statistics), "task": task, "model": sizes.smoke_tokens(statistics, 41)}


def _read(trained: TrainedOn, source: Source, labels: Iterable[object] | None) -> Text:
    """Read a text: a file, a folder of files, or a string."""
    vocabulary, settings = trained.vocabulary, trained.settings
    assert vocabulary is not None  # every model of text has one
    if labels is not None or not isinstance(source, Path | str):
        raise TypeError(f"text to evaluate on must be a file or a string, without labels; got {type(source).__name__}")
    ends = settings.data_options.get("line_ends", False)
    if isinstance(source, Path):
        tokens = text.encoded(source, vocabulary, line_ends=ends)
    else:
        tokens = text.encoded_text(source, vocabulary, line_ends=ends)
    if len(tokens) < 2:
        raise ValueError(f"text to evaluate on must have at least two {vocabulary.kind}, got {len(tokens)}")
    least = 1 + settings.context * settings.batch_size  # the task wants so many to train on, which it does not do here
    return Text(np.resize(tokens, max(least, len(tokens))), tokens, tokens, vocabulary)


_language = partial(
    Kind, noun="text", commands=("write", "stream"), steps=sizes.counted("tokens", "tokens"), smoke=_smoke,
    pipeline="text-generation", read=_read, figure="text", page="text", card_of=_card,
)  # fmt: skip
CHARACTERS = _language(
    format=text.CHARACTERS,
    task=LanguageTask,
    inputs=INPUTS.format("characters", "one"),
    auto=_auto,
    cells=sizes.BALANCED_CELLS,
    vocabularies=("characters", "code points"),
    reading="by characters",
)
WORDS = _language(
    format=text.WORDS,
    task=WordTask,
    inputs=INPUTS.format("words", "word"),
    auto=_auto_words,
    cells=sizes.BALANCED_CELLS,
    vocabularies=("words", "words and punctuation"),
    reading="by words",
)
BYTES = _language(
    format=text.BYTES,
    task=LanguageTask,
    inputs=INPUTS.format("bytes", "one"),
    auto=_auto,
    cells=sizes.BALANCED_CELLS,
    vocabularies=("bytes",),
    reading="by bytes",
)
