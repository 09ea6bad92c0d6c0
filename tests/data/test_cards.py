"""docs/data.md describes every data set with the counts of the catalogue."""

import re
from pathlib import Path

import pytest

from rru.data import CATALOGUE

DOCUMENT = (Path(__file__).parents[2] / "docs" / "data.md").read_text()


@pytest.mark.parametrize("name", CATALOGUE)
def test_section_has_counts_licence_and_citation(name: str) -> None:
    this = CATALOGUE[name]
    card = DOCUMENT.split(f"### {name}: {this.title}\n")[1].split("\n### ")[0]
    rows = dict(re.findall(r"^\| ([^|]+) \| (.*) \|$", card, re.MULTILINE))
    assert rows.pop("cite") == this.citation
    assert rows.pop("licence") == this.licence
    counts = {what: value if isinstance(value, list) else [value] for what, value in this.statistics.items()}
    expected = {
        what.replace("_", " "): " / ".join(f"{number:,}" for number in numbers)
        for what, numbers in counts.items()
        if all(isinstance(number, int) for number in numbers)
    }
    assert rows == expected


def test_sections_are_those_of_the_catalogue() -> None:
    assert re.findall(r"^### ([\w-]+):", DOCUMENT, re.MULTILINE) == list(CATALOGUE)
