"""The paper's numbers beside ours are the paper's: read from its own source, where that is."""

import re
from pathlib import Path

import pytest

from rru.experiments import plans
from rru.report.identify import paper
from tests.settings.paper import number, table

SHARED = Path(__file__).parents[3] / "shared"
TABLE1 = {
    "Music JSB Chorales (NLL)": "jsb",
    "Music Nottingham (NLL)": "nottingham",
    "Music MuseData (NLL)": "musedata",
    "Music Piano-midi.de (NLL)": "piano-midi",
    "Word-level Penn Treebank (Perplexity)": "ptb-words",
    "Character-level Penn Treebank (BPC)": "ptb-chars",
    "Character-level enwik8 (BPC)": "enwik8",
    "Character-level text8 (BPC)": "text8",
    "Sentiment analysis IMDB (Accuracy)": "imdb",
    "Sequential MNIST (Accuracy)": "mnist",
    "Permuted MNIST (Accuracy)": "pmnist",
}
TABLE2 = ("ptb-chars", "imdb", "mnist", "nottingham", "ptb-words")
HEADS2 = ["Character PTB (BPC)", "IMDB (Accuracy)", "Sequential MNIST (Accuracy)", "Nottingham (NLL)"]
VERSIONS = {
    "RRU": "RRU",
    "no normalization": "no normalization",
    "single scalar ReZero": "single scalar ReZero",
    "ReLU over $c$ and $o_t$": "ReLU over c and o",
    "$S=1$": "S = 1",
    "$S$ initialized with $0.95$": "S initialized with 0.95",
}


@pytest.fixture(scope="module")
def source():
    if not (SHARED / "paper.tex").is_file():
        pytest.skip("../shared/paper.tex is not here")
    return (SHARED / "paper.tex").read_text(encoding="utf-8")


def plain(text):
    return re.sub(r"\\textbf\{(.*)\}", r"\1", text)


def test_table_1(source):
    header, *blocks = table(source, "tab:results")
    cells = [*header[0][2:-1], f"{header[0][-1]} {header[1][-1]}"]
    rows = [row for block in blocks for row in block]
    assert len(rows) == 11
    read = {
        TABLE1[name]: {cell: number(plain(text)) for cell, text in zip(cells, texts, strict=True)}
        for name, _, *texts in rows
    }
    assert paper()["table1"] == read


def test_table_2(source):
    header, rows = table(source, "tab:ablation")
    heads = [" ".join(part for part in parts if part) for parts in zip(*header, strict=True)][1:]
    assert [re.sub(r"\\multirow\{2\}\{\*\}\{(.*?)\}", r"\1", head) for head in heads] == [
        *HEADS2,
        "Word PTB (Perplexity)",
    ]
    assert len(rows) == 6
    read = {task: {} for task in TABLE2}
    for name, *texts in rows:
        for task, text in zip(TABLE2, texts, strict=True):
            read[task][VERSIONS[plain(name)]] = number(plain(text))
    assert paper()["table2"] == read


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_every_place_of_the_papers_tables_has_its_number(name):
    places = {(entry.task, entry.line) for entry in plans.load(name, "paper").runs}
    assert {(task, line) for task, lines in paper()[name].items() for line in lines} == places
