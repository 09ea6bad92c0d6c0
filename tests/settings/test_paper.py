"""Every number of the paper's Appendix 4 is in the presets. It is read from the paper's own source, where that is."""

import functools
import re
from pathlib import Path

import pytest

from rru.settings import presets
from tests.settings.paper import number, paragraph, table

SHARED = Path(__file__).parents[3] / "shared"
CELLS = {"RRU": "rru", "GRU": "gru", "LSTM": "lstm", "Mogrifier LSTM": "mogrifier"}
MUSIC = ("jsb", "nottingham", "musedata", "piano-midi")
TASKS = {  # by the names of tables' rows and columns
    "JSB": ("jsb",),
    "Nottingham": ("nottingham",),
    "Muse": ("musedata",),
    "Piano": ("piano-midi",),
    "Word PTB": ("ptb-words",),
    "wiki8s": ("enwik8", "text8"),
    "MNISTs": ("mnist", "pmnist"),
    "enwik8": ("enwik8",),
    "text8": ("text8",),
    "IMDB": ("imdb",),
    r"Sequential MNIST \& P-MNIST": ("mnist", "pmnist"),
}
KEYS = {
    "Learning rate": "optimiser.lr",
    "Dropout rate": "model.dropout",
    "Number of parameters": "model.budget",
    "Context size": "task.context",
    "Batch size": "task.batch_size",
    "Number of layers": "model.num_layers",
    "Embedding size": "model.embedding_size",
    "Breaks after ... epochs with no performance gain": "schedule.patience",
    "ReLU layers": "model.relu_layers",
    "Middle layer size multiplier $q$": "model.expansion",
    "Output size": "model.output_size",
    "Forget bias": "model.forget_bias",
    "Feature mask rounds": "model.rounds",
    "Feature mask rank": "model.rank",
}


@pytest.fixture(scope="module")
def source():
    return read("paper.tex")


def read(name):
    if not (SHARED / name).is_file():
        pytest.skip(f"../shared/{name} is not here")
    return (SHARED / name).read_text(encoding="utf-8")


def value(task, cell, key):
    """A preset's value; `-` where it has none, as in the paper's tables."""
    section, _, name = key.partition(".")
    return tables(task, cell)[section].get(name, "-")


@functools.cache
def tables(task, cell):
    return presets.load(task, cell, "paper").tables()


def compare(task, cell, key, text):
    expected = text if text == "-" else number(text)
    assert (task, cell, key, value(task, cell, key)) == (task, cell, key, expected)


def test_tuned_values(source):
    header, *blocks = table(source, "tab:apx-a-main-tuned-best")
    columns = header[0][1:]
    assert len(columns) == 5
    compared = 0
    for (title,), rows in zip(blocks[::2], blocks[1::2], strict=True):
        for name, *texts in rows:
            for column, text in zip(columns, texts, strict=True):
                (task,) = TASKS[column]
                compare(task, CELLS[title[0]], KEYS[name], text)
                compared += 1
    assert compared == 5 * (4 + 3 + 4 + 5)


def test_values_the_same_for_each_cell(source):
    header, rows = table(source, "tab:apx-a-main-not-tuned-same")
    assert len(rows) == 12
    for name, *texts in rows:
        cell, key = re.fullmatch(r"(?:\$\[(.*)\]\$ )?(.*)", name).groups()
        for column, text in zip(header[0][1:], texts, strict=True):
            for task in TASKS[column]:
                for each in [CELLS[cell]] if cell else CELLS.values():
                    compare(task, each, KEYS[key], text)


def test_values_that_differ_between_cells(source):
    header, *blocks = table(source, "tab:apx-a-main-not-tuned-different")
    assert len(blocks) == 4
    for rows in blocks:
        tasks = TASKS[" ".join(row[0] for row in rows if row[0])]
        above = [""] * 4
        for row in rows:
            above = [text or before for text, before in zip(row, above, strict=True)]  # a value may span rows
            for cell in CELLS.values() if above[1] == "*" else [CELLS[above[1]]]:
                for task in tasks:
                    for name, text in zip(header[0][2:], above[2:], strict=True):
                        compare(task, cell, KEYS[name], text)


def test_tuned_values_lie_in_the_ranges_that_were_searched(source):
    _, *blocks = table(source, "tab:apx-a-main-tuned")
    (music, *_), (words,) = blocks
    bounds = {}
    for name, text in zip(("optimiser.lr", "model.dropout", "model.budget"), music[1:], strict=True):
        bounds[name] = [number(part) for part in re.search(r"\[(.*)\]", text)[1].replace("; ", " - ").split(" - ")]
    words_budget = [number(part) for part in re.search(r"\[(.*)\]", words[3])[1].split(" - ")]
    assert (bounds["model.budget"], words_budget) == ([1e6, 15e6], [10e6, 30e6])
    for task in (*MUSIC, "ptb-words"):
        for cell in CELLS.values():
            for name, (least, most) in (
                bounds | ({"model.budget": words_budget} if task == "ptb-words" else {})
            ).items():
                assert least <= value(task, cell, name) <= most


PROSE = {
    ("All four polyphonic music datasets use", MUSIC): {
        r"context size as (\d+)": "task.context",
        r"batch size as (\d+)": "task.batch_size",
        r"the number of layers as (\d+)": "model.num_layers",
        r"we use (\d+) ReLU layer": "rru model.relu_layers",
        r"output size of (\d+)": "rru model.output_size",
        r"a lower NLL for (\d+) epochs": "schedule.patience",
    },
    ("For the word-level Penn treebank, we set", ("ptb-words",)): {
        r"context size as (\d+)": "task.context",
        r"batch size as (\d+)": "task.batch_size",
        r"number of layers as (\d+)": "model.num_layers",
        r"embedding size of (\d+)": "model.embedding_size",
        r"we use (\d+) ReLU layer": "rru model.relu_layers",
        r"output size of (\d+)": "rru model.output_size",
        r"a lower perplexity for (\d+) epochs": "schedule.patience",
    },
    ("For character-level Penn Treebank we set", ("ptb-chars",)): {
        r"number of parameters as (\d+) million": "model.budget",
        r"learning rate as \$(1e-3)\$": "optimiser.lr",
        r"context size as (\d+)": "task.context",
        r"batch size as (\d+)": "task.batch_size",
        r"the number of layers as (\d+)": "model.num_layers",
        r"embedding size of (\d+)": "model.embedding_size",
        r"we use (\d+) ReLU layers": "rru model.relu_layers",
        r"multiplier \$q\$ as ([\d.]+)": "rru model.expansion",
        r"output size of (\d+)": "rru model.output_size",
        r"forget bias as ([\d.]+)": "lstm model.forget_bias",
        r"we use (\d+) feature mask rounds": "mogrifier model.rounds",
        r"of rank (\d+)": "mogrifier model.rank",
        r"a lower BPC for (\d+) epochs": "schedule.patience",
        r"dropout rates from (0.0) to 0.9": None,  # the grid, whose best is in the next test
        r"dropout rates from 0.0 to (0.9)": None,
    },
}


@pytest.mark.parametrize(("start", "tasks"), PROSE)
def test_numbers_in_the_text(source, start, tasks):
    text = re.sub(r"\\cite\{.*?\}", "", paragraph(source, start))
    places = set()
    for pattern, key in PROSE[start, tasks].items():
        found = re.search(pattern, text)
        places.add(found.start(1))
        if key is None:
            continue
        cell, _, name = key.rpartition(" ")
        expected = number(found[1] + ("M" if "million" in pattern else ""))
        for task in tasks:
            for each in [cell] if cell else CELLS.values():
                assert (task, each, name, value(task, each, name)) == (task, each, name, expected)
    numbers = {found.start() for found in re.finditer(r"(?<![\w.])\d[\d.]*(?:e-\d+)?", text)}
    assert numbers == places  # none was left out


def test_dropout_of_characters_is_that_of_the_figure(source):
    found = dict(re.findall(r"(RRU|GRU|Mogrifier LSTM|LSTM) has a ([\d.]+) dropout", source))
    assert len(found) == 4
    for cell, text in found.items():
        compare("ptb-chars", CELLS[cell], "model.dropout", text)


def test_contexts_and_state_of_the_data_sets(source):
    begin = source.index(r"\label{dataset-configuration}")
    text = source[begin : source.index(r"\label{main-configuration}")]
    stateful = paragraph(source, "Character-level Penn Treebank also")
    assert "stateful manner" in stateful
    chars, wiki = re.search(r"window size of (\d+) for Penn Treebank and (\d+) for enwik8 and text8", stateful).groups()
    expected = dict.fromkeys(MUSIC, re.search(r"sequences to length (\d+), similarly", text)[1])
    expected["ptb-words"] = re.search(r"context length of (\d+)", text)[1]
    expected |= {"ptb-chars": chars, "enwik8": wiki, "text8": wiki}
    expected |= dict.fromkeys(("mnist", "pmnist"), re.search(r"a sequence of (\d+) elements", text)[1])
    for task, context in expected.items():
        for cell in CELLS.values():
            compare(task, cell, "task.context", context)
            if task in ("ptb-words", "ptb-chars", "enwik8", "text8"):
                assert value(task, cell, "task.stateful") == (task != "ptb-words")


def test_budgets_named_in_the_text(source):
    text = paragraph(source, "The remaining datasets")
    wiki, mnist = re.search(r"\((\d+) million\).*\((\d+) thousand\)", text).groups()
    for cell in CELLS.values():
        compare("enwik8", cell, "model.budget", f"{wiki}M")
        compare("mnist", cell, "model.budget", f"{mnist}K")
        compare("pmnist", cell, "model.budget", f"{mnist}K")


def test_optimiser_is_that_of_the_authors_program():
    text = read("reference.md")
    beta1, beta2, eps = re.search(r"RAdam, betas ([\d.]+) / ([\d.]+), eps (1e-\d+)", text).groups()
    clips = dict(re.findall(r"(music|language|IMDB|MNIST) (\d[\d.]*)(?=[,.])", text[text.index("Multiplier:") :]))
    of_task = {"bach": "music", "imdb": "IMDB", "mnist": "MNIST", "pmnist": "MNIST"} | dict.fromkeys(MUSIC, "music")
    for task in presets.tasks():
        for cell in CELLS.values():
            compare(task, cell, "optimiser.beta1", beta1)
            compare(task, cell, "optimiser.beta2", beta2)
            compare(task, cell, "optimiser.eps", eps)
            compare(task, cell, "optimiser.clip", clips[of_task.get(task, "language")].rstrip("."))
            assert value(task, cell, "optimiser.clipping") == "adaptive"


def test_bach_follows_jsb():
    for cell in CELLS.values():
        jsb, bach = presets.load("jsb", cell, "paper"), presets.load("bach", cell, "paper")
        assert bach == jsb.changed({"task.name": "bach"})
