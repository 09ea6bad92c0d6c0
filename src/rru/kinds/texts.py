"""Texts with labels, to classify: the catalogue's film reviews, and users' tables and folders of texts."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rru.data import SPLITS, DataError, LabelledTexts, Reviews, words_of
from rru.data.own import texts
from rru.data.own.data_json import LabelFacts, Statistics
from rru.data.own.detect import TABLES
from rru.data.own.frames import is_frame, table_from
from rru.data.own.in_memory import NAME
from rru.data.own.texts import labelled_texts
from rru.data.reviews import WORD
from rru.data.streams import read_file
from rru.kinds import sizes
from rru.kinds.kind import Card, Kind, TrainedOn, probable_classes
from rru.kinds.sizes import Tables
from rru.kinds.sources import Source, items_of, labelled
from rru.tasks import Recurrent, ReviewTask, TaskSettings
from rru.tasks.classification import REVIEW_CLASSES

FILE_LIMIT = 1 << 24  # bytes
INPUTS = "(steps, batch) int64, numbers of words in vocabulary.json; logits are of {}"

READ = f"""import json
import re
from pathlib import Path

vocabulary = json.loads(Path("vocabulary.json").read_text())
numbers = {{token: number for number, token in enumerate(vocabulary["tokens"])}}
text = "It was great, really great."
words = re.findall(r"{WORD}", text.lower())[-CONTEXT:]
inputs = np.array([[numbers.get(word, vocabulary["unknown"])] for word in words])  # (steps, 1)
"""


def _card(trained: TrainedOn, model: Recurrent) -> Card:
    classes = 'json.loads(Path("data.json").read_text())["classes"]' if trained.data else str(list(REVIEW_CLASSES))
    prepare = READ.replace("CONTEXT", str(trained.settings.context))
    return Card(prepare, probable_classes(classes))


def _auto(statistics: Statistics, scale: float) -> Tables:
    words, count, embedding = statistics["words"][0], statistics["texts"][0], 32
    task = {
        "context": sizes.power_of_two(words / max(count, 1) * 3, 16, 512),
        "batch_size": sizes.power_of_two(count / sizes.BATCHES, sizes.MIN_BATCH, sizes.MAX_BATCH),
    }
    layers = sizes.scaled(sizes.between(words // 20, 20_000, 300_000), scale, embedding)
    budget = sizes.rounded(layers, statistics["vocabulary"] * embedding)
    model = {"budget": budget, "dropout": 0.5, "embedding_size": embedding}
    return sizes.decaying(sizes.between(45_000_000 // max(words, 1), 5, 60), task, model)


def _smoke(statistics: Statistics) -> Tables:
    return {**sizes.smoke(statistics), "model": sizes.smoke_tokens(statistics, 8)}


def _steps(items: str, statistics: Statistics, split: int, settings: TaskSettings) -> float | None:
    """Count the words, of each text at most `context`."""
    words = sizes.counted("words", items)(statistics, split, settings)
    if words is None:
        return None
    return min(words, settings.limited(statistics[items][split], SPLITS[split]) * settings.context)


def _items(trained: TrainedOn, source: Source) -> Iterator[tuple[str, Tensor]]:
    """Yield the last `context` words of a text file, of the texts in the rows of a table, or of texts."""
    last = slice(-trained.settings.context, None)
    if not _is_table(source):
        texts = [("", _words_in(source))] if isinstance(source, Path) else _given_words(source)
        for name, words in texts:
            yield name, _tokens(trained, words[last])
        return
    for row, text in enumerate(table_from(source, least=1)[_column(trained, source, "text")].texts(), 1):
        if words := words_of(text):
            yield f"row {row}", _tokens(trained, words[last])


def _is_table(source: Source) -> bool:
    return is_frame(source) or (isinstance(source, Path) and source.suffix.lower() in TABLES)


def _column(trained: TrainedOn, source: Source, name: str) -> str:
    """Return the column of a table that has the texts or labels."""
    if trained.data is None or name not in trained.data.options:
        file = source if isinstance(source, Path) else NAME
        raise DataError(file, "must be a text file, or texts: the run was trained on texts, not on a table")
    return str(trained.data.options[name])


def _given_words(source: Source) -> Iterator[tuple[str, list[str]]]:
    """Yield the names and words of texts that are in memory."""
    for name, text in items_of(source, 0):
        if not isinstance(text, str):
            raise TypeError(f"texts must be strings, got {type(text).__name__}")
        if not (words := words_of(text)):
            raise ValueError(f"a text must have at least one word, got {text!r}")
        yield name, words


def _read(trained: TrainedOn, source: Source, labels: Iterable[object] | None) -> Reviews:
    """Read labelled texts: a table, a folder with one sub-folder for each class, or texts and their labels."""
    if labels is not None:
        items = labelled([words for _, words in _given_words(source)], labels)
    elif isinstance(source, Path) or is_frame(source):
        folder = isinstance(source, Path) and source.is_dir()
        names = {} if folder else {name: _column(trained, source, name) for name in ("text", "label")}
        items = labelled_texts(source, names)
    else:
        raise ValueError("labels must be given with texts: the class of each, such as labels=['good', 'bad']")
    assert trained.vocabulary is not None  # every model of texts has one
    classes = trained.facts.classes if isinstance(trained.facts, LabelFacts) else REVIEW_CLASSES
    tokens = trained.vocabulary.numbers([word for words in items.contents for word in words])
    part = LabelledTexts(tokens, items.offsets, items.indices(classes))
    return Reviews(part, part, part, trained.vocabulary, classes)


def _words_in(path: Path) -> list[str]:
    try:
        words = words_of(read_file(path, FILE_LIMIT).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(path, f"must be UTF-8 text ({error.reason} at byte {error.start})") from error
    if not words:
        raise DataError(path, "must have at least one word, got none")
    return words


def _tokens(trained: TrainedOn, words: list[str]) -> Tensor:
    """Return the token ids of words, (T, 1)."""
    assert trained.vocabulary is not None  # every model of texts has one
    return torch.from_numpy(trained.vocabulary.numbers(words).astype(np.int64))[:, None]


def _line(trained: TrainedOn, line: str) -> Tensor | None:
    words = words_of(line)
    return _tokens(trained, words) if words else None


_texts = partial(
    Kind, task=ReviewTask, noun="labelled texts", commands=("classify", "stream"), vocabularies=("words",),
    pipeline="text-classification", items=_items, read=_read, line=_line, figure="confusion matrix", page="texts",
    card_of=_card,
)  # fmt: skip
TEXTS = _texts(
    format=texts.FORMAT,
    steps=partial(_steps, "texts"),
    inputs=INPUTS.format("the classes in data.json"),
    auto=_auto,
    smoke=_smoke,
)
REVIEWS = _texts(
    format=texts.REVIEWS,
    steps=partial(_steps, "reviews"),
    inputs=INPUTS.format("negative and positive"),
    classes=REVIEW_CLASSES,
)
