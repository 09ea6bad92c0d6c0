"""The page tells a story: a sentence, who won, a sample and the next command of each data set, then tables."""

import json
import re

import pytest

from rru import data, report
from rru.report import glossary
from rru.report.page import page_style
from rru.report.samples import written
from rru.report.statistics import MIN_SEEDS
from rru.settings import presets
from tests import own_files
from tests.report.samples import page, preset, seen, text_of, write_run


def opening(html):
    return text_of(f"<body{re.search('<h1>.*?</h1>', html, re.DOTALL)[0]}")


def results(tmp_path, tests, task="bach", name="demo", seeds=1, **changes):
    """Write runs of some cells; each seed is a little worse."""
    return {
        cell: [
            write_run(tmp_path / "runs", preset(task, cell, name, seed), test + 0.01 * seed, **changes)
            for seed in range(seeds)
        ]
        for cell, test in tests.items()
    }


def test_page_opens_with_the_winner(tmp_path):
    results(tmp_path, {"rru": 5.33, "gru": 5.45, "lstm": 5.63})
    html = page(tmp_path)
    assert opening(html) == "RRU predicts unseen chorales best: NLL 5.33 against 5.45 for the GRU; one seed each."
    told = seen(html)
    assert "preset demo RRU best GRU +0.12 LSTM +0.30 test NLL, lower is better · output nade" in told
    assert told.index("RRU best") < told.index("Tables How") < told.index("All runs Click")


@pytest.mark.parametrize(
    ("tests", "seeds", "sentence"),
    [
        ({"rru": 8.0}, 1, "RRU reaches NLL 8.00 on JSB Chorales; one seed."),
        ({"rru": 8.0, "gru": 8.0}, 1, "RRU and GRU are equal on JSB Chorales: NLL 8.00; one seed each."),
        (
            {"rru": 8.0, "gru": 8.5},
            2,
            "RRU is ahead on JSB Chorales, but not significantly: NLL 8.00 against 8.50 for the GRU; 2 seeds each.",
        ),
        (
            {"rru": 8.0, "gru": 8.5},
            MIN_SEEDS,
            "RRU predicts unseen chorales best: NLL 8.01 against 8.51 for the GRU; significant, 4 seeds each.",
        ),
        ({"rru": None, "gru": None}, 1, "No result on JSB Chorales yet: 2 stopped."),
    ],
)
def test_sentence_says_how_sure_the_result_is(tmp_path, tests, seeds, sentence):
    for cell, test in tests.items():
        for seed in range(seeds):
            write_run(tmp_path / "runs", preset(cell=cell, seed=seed), test and test + 0.01 * seed)
    assert opening(page(tmp_path)) == sentence


def test_different_numbers_of_seeds_are_listed(tmp_path):
    for seed in range(3):
        write_run(tmp_path / "runs", preset(seed=seed), 8.0)
    write_run(tmp_path / "runs", preset(cell="gru"), 8.5)
    assert "Means over seeds: RRU 3, GRU 1" in seen(page(tmp_path))


def test_only_a_significant_winner_is_green(tmp_path):
    results(tmp_path / "one", {"rru": 5.33, "gru": 5.45})
    results(tmp_path / "four", {"rru": 5.33, "gru": 5.45}, seeds=MIN_SEEDS)
    assert re.findall('class="(leader[^"]*)"', page(tmp_path / "one")) == ["leader"]
    assert re.findall('class="(leader[^"]*)"', page(tmp_path / "four")) == ["leader sure"]


def test_several_data_sets_are_counted(tmp_path):
    results(tmp_path, {"rru": 5.33, "gru": 5.45}, "bach", "paper", seeds=MIN_SEEDS)
    results(tmp_path, {"rru": 8.0, "gru": 8.5}, "jsb", "paper")
    results(tmp_path, {"rru": 80.0, "gru": 85.0}, "imdb", "paper")
    html = page(tmp_path)
    assert opening(html) == "RRU is best on 2 of 3 data sets, significantly on 1."
    assert "GRU classifies unseen reviews best: accuracy 85.00 % against 80.00 % for the RRU; one seed each." in (
        seen(html)
    )
    assert html.count('<section class="story"') == 3


def test_trial_runs_have_no_winner(tmp_path):
    results(tmp_path, {"rru": 40.0, "gru": 41.0}, name="smoke")
    html = page(tmp_path)
    assert opening(html) == "Trial runs on Bach chorales work: 2 of 2 runs finished."
    assert 'class="leader' not in html


def test_other_presets_of_a_data_set_are_folded(tmp_path):
    results(tmp_path, {"rru": 5.33, "gru": 5.45})
    results(tmp_path, {"rru": 40.0}, name="smoke")
    html = page(tmp_path)
    assert html.count('<section class="story"') == 1
    assert "Preset smoke: Trial runs on Bach chorales work: 1 of 1 run finished" in text_of(html)
    assert "Trial runs" not in seen(html)


def test_no_number_is_there_three_times(tmp_path):
    results(tmp_path, {"rru": 5.3312, "gru": 5.4478, "lstm": 5.6391, "mogrifier": 5.7714})
    told = seen(page(tmp_path))
    for test, rounded in (("5.3312", "5.33"), ("5.4478", "5.45"), ("5.6391", "5.64"), ("5.7714", "5.77")):
        assert told.count(test) == 1  # of the run
        assert 1 <= len(re.findall(rf"(?<![\d.]){re.escape(rounded)}(?!\d)", told)) <= 2


def test_command_composes_with_the_best_model_into_its_folder(tmp_path):
    folders = results(tmp_path, {"rru": 5.33, "gru": 5.45})
    best = folders["rru"][0]
    command = f"Compose with RRU; the next report plays the piece: rru compose {best} -o {best}/music/piece.mid Copy"
    assert command in seen(page(tmp_path))
    (best / "music").mkdir()
    (best / "music" / "piece.png").write_bytes(b"png")
    assert f"Compose more with RRU: rru compose {best} Copy" in seen(page(tmp_path))


def test_command_trains_again_where_only_results_were_kept(tmp_path):
    for cell, test in {"rru": 7.85, "gru": 8.2}.items():
        (write_run(tmp_path / "runs", preset(cell=cell), test) / "best").rmdir()
    assert "Train RRU again: rru train jsb --cell rru --preset paper Copy" in seen(page(tmp_path))


def test_command_resumes_what_was_stopped(tmp_path):
    folder = write_run(tmp_path / "my runs", preset(), None)
    report.write([tmp_path / "my runs"], tmp_path / "page.html")
    assert f"Train on: rru train '{folder}' Copy" in seen((tmp_path / "page.html").read_text())


def test_text_that_a_model_wrote_is_shown_and_escaped(tmp_path):
    folder = write_run(tmp_path / "runs", preset("ptb-chars"), 1.3)
    (folder / "details.json").write_text(json.dumps({"prompt": "the <b>mark", "written": "et fell </p> today"}))
    html = page(tmp_path)
    assert "the &lt;b&gt;mark</span>et fell &lt;/p&gt; today</p>" in html
    assert written({"prompt": "a", "written": 7}) == written({"prompt": "a"}) == []


def test_confusion_matrix_of_a_catalogue_task_is_shown(tmp_path):
    folder = write_run(tmp_path / "runs", preset("imdb"), 87.5)
    details = {"classes": ["negative", "positive"], "confusion": [[40, 10], [5, 45]]}
    (folder / "details.json").write_text(json.dumps(details))
    assert "The 85 of 100 on the diagonal are right." in seen(page(tmp_path))


def test_terms_are_explained_once_in_a_sentence_and_in_a_list():
    html = glossary.explained("<NLL> of a seed, another seed: Not significant")
    assert html.count('class="term"') == 3
    assert "&lt;<button" in html
    assert 'aria-describedby="term-not-significant">Not significant</button>' in html
    assert glossary.explained("NLLs") == "NLLs"


def test_a_sign_after_a_term_stays_on_its_line():
    assert '<span class="kept"><button' in glossary.explained("not significantly: NLL 2.96 against 3.26")
    assert "not significantly</button>:</span> <button" in glossary.explained("not significantly: NLL 2.96")
    assert re.search(r"\.kept \{ white-space: nowrap; \}", page_style())


def test_every_term_on_a_page_has_its_explanation(tmp_path):
    results(tmp_path, {"rru": 5.33, "gru": 5.45}, seeds=MIN_SEEDS)
    html = page(tmp_path)
    keys = set(re.findall('aria-describedby="([^"]+)"', html))
    assert {"term-nll", "term-seed", "term-preset"} <= keys <= set(re.findall('<dd id="([^"]+)"', html))


def test_a_file_on_which_all_runs_are_trials_has_no_winner(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    own = data.from_path(own_files.text(tmp_path / "novel.txt"))
    for cell, test in {"rru": 2.5, "lstm": 2.75}.items():
        folder = write_run(tmp_path / "runs", presets.load(own, cell, "smoke"), test)
        (folder / "data.json").write_text(json.dumps(own.facts.fields()))
    assert opening(page(tmp_path)) == "Trial runs on novel.txt work: 2 of 2 runs finished."


def test_a_run_that_has_a_page_to_try_is_linked(tmp_path):
    run = results(tmp_path, {"rru": 5.33, "gru": 5.45})["rru"][0]
    assert "in your browser" not in page(tmp_path)
    (run / "page.html").write_text("<!doctype html>")
    link = f'<a href="{run.relative_to(tmp_path).as_posix()}/page.html">Try this model in your browser</a>'
    assert link in page(tmp_path)
