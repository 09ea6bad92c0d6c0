"""Runs on a user's own data: their tables, lines and advice on the page."""

import json
import re

import numpy as np
import pytest

from rru import data
from rru.settings import presets
from tests import own_files
from tests.report.samples import page, seen, text_of, write_run


@pytest.fixture
def own_run(tmp_path, monkeypatch):
    """Return a function that writes a finished run on own data."""
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))

    def write(test, path, cell="rru", changes=(), preset="auto", **options):
        own = data.from_path(path, **options)
        folder = write_run(tmp_path / "runs", presets.override(presets.load(own, cell, preset), changes), test)
        (folder / "data.json").write_text(json.dumps(own.facts.fields()))
        return folder

    return write


def test_variants_of_a_file_have_separate_tables(tmp_path, own_run):
    file = own_files.text(tmp_path / "novel.txt")
    own_run(2.5, file)
    own_run(2.75, file, "lstm")
    own_run(120.0, file, by="words")
    own_run(130.0, file, by="words", vocabulary=50)
    said = text_of(page(tmp_path))
    assert "Results: novel.txt (by characters). Test score" in said
    assert "novel.txt (by characters) BPC, lower is better 2.50 2.75 RRU:" in said
    assert "novel.txt (by words) perplexity, lower is better 120.00" in said
    assert "novel.txt (by words, vocabulary=50) perplexity, lower is better 130.00" in said
    assert said.count("Results: ") == 3


def test_inputs_of_a_series_are_lines_of_one_table(tmp_path, own_run):
    file = tmp_path / "energy.csv"
    days = np.arange("2026-01-01", "2026-05-01", dtype="datetime64[D]")
    file.write_text("day,load\n" + "".join(f"{day},{5 + n % 7 + n / 100}\n" for n, day in enumerate(days)))
    for test, options in ((0.8, {}), (0.7, {"calendar": True}), (0.6, {"horizon": 2})):
        own_run(test, file, **{"target": "load", "horizon": 4, **options})
    said = text_of(page(tmp_path))
    assert "task RRU, calendar=true RRU best energy.csv (horizon=4) MASE, lower is better 0.70 0.80 not ranked" in said
    assert "energy.csv (horizon=2) MASE, lower is better 0.60" in said


def test_further_forecasts_of_the_best_model_are_folded(tmp_path, own_run):
    file = tmp_path / "energy.csv"
    file.write_text("load\n" + "".join(f"{5 + step % 7}.{step % 3}\n" for step in range(100)))
    folder = own_run(0.8, file, target="load", horizon=2)
    fan = {"history": [1.0, 2.0], "actual": [2.0, 3.0], "quantiles": [[1.0, 2.0, 3.0, 4.0, 5.0]] * 2}
    details = {"target": "load", "fans": [{**fan, "name": f"town {number}"} for number in range(4)]}
    (folder / "details.json").write_text(json.dumps(details))
    html = page(tmp_path)
    assert [f"town {number}: RRU" in seen(html) for number in range(4)] == [True, True, False, False]
    assert [f"town {number}: RRU" in text_of(html) for number in range(4)] == [True] * 4


def test_runs_of_other_presets_or_settings_are_not_ranked_with_each_other(tmp_path, own_run):
    for name in ("novel.txt", "essay.txt"):
        file = own_files.text(tmp_path / name)
        own_run(1.5, file, changes=["epochs=3"])
        for cell, test in {"rru": 2.5, "gru": 2.25, "lstm": 2.5, "mogrifier": 2.5}.items():
            own_run(test, file, cell, preset="smoke")
    html = page(tmp_path)
    assert "is best" not in text_of(html)
    assert 'class="leader' not in html
    said = seen(html)
    assert "RRU reaches BPC 1.50 on essay.txt; one seed." in said
    assert "Results with epochs=3: essay.txt. Test score" in said
    assert "Results with preset smoke: essay.txt. Test score" in said
    assert "Your data, preset smoke: Trial runs on essay.txt work: 4 of 4 runs finished" in text_of(html)


def test_cells_that_share_preset_and_changes_are_ranked(tmp_path, own_run):
    file = own_files.text(tmp_path / "novel.txt")
    own_run(1.0, file, changes=["epochs=90"])
    for cell, test in {"rru": 2.5, "gru": 2.25}.items():
        own_run(test, file, cell)
        own_run(test + 1, file, cell, changes=["epochs=3"])
    said = text_of(page(tmp_path))
    assert "GRU predicts novel.txt best: BPC 2.25 against 2.50 for the RRU; one seed each." in said
    assert "Your data, epochs=3: GRU is best of 2, not significant; one seed each" in said
    assert "Results with epochs=90: novel.txt. Test score" in said


def test_a_tie_is_not_a_win(tmp_path, own_run):
    for name, tests in {"novel.txt": {"rru": 1.0, "gru": 2.0}, "essay.txt": {"rru": 1.001, "gru": 1.002}}.items():
        for cell, test in tests.items():
            own_run(test, own_files.text(tmp_path / name), cell)
    own_run(3.0, own_files.text(tmp_path / "poem.txt"), "rru")
    own_run(3.5, own_files.text(tmp_path / "poem.txt"), "gru")
    html = page(tmp_path)
    assert "RRU is best on 2 of 3 data sets, on none significantly." in text_of(html)
    assert "RRU and GRU are equal on essay.txt: BPC 1.00; one seed each." in seen(html)
    assert "two are equal in the digits shown" in seen(html)
    assert html.count('class="leader') == 2


def test_a_single_cell_has_its_score_on_the_card(tmp_path, own_run):
    own_run(2.5, own_files.text(tmp_path / "novel.txt"))
    said = seen(page(tmp_path))
    assert "your data RRU 2.50 validation BPC 2.75 best epoch 3 epochs 5 parameters" in said


def test_indistinguishable_settings_have_separate_lines(tmp_path, own_run):
    file = own_files.text(tmp_path / "novel.txt")
    for rate, test in ((0.001, 2.5), (0.002, 2.25)):
        (own_run(test, file, changes=[f"lr={rate}"]) / "data.json").unlink()
    said = text_of(page(tmp_path))
    assert re.search(r"task RRU RRU \(\w+\) best novel.txt BPC, lower is better [\d.]+ [\d.]+ not ranked", said)
