"""Runs of a user's own cell are compared with the others, whether or not its code is loaded."""

import csv
import re

import pytest

from rru import report
from rru.experiments import plans
from rru.report.gather import gather
from rru.report.identify import origin, preset_of
from rru.report.own_plans import MAX_SETTINGS, MAX_TABLES
from rru.report.results import build
from rru.report.user_cells import config_without_code
from tests.report.samples import page, preset, seen, write_run


def like_the_rru(config, cell="janet", **options):
    """The settings of a user's cell: those of an RRU, without the options that only the RRU has."""
    tables = config.tables()
    shared = ("budget", "num_layers", "dropout", "embedding_size")
    model = {name: value for name, value in tables["model"].items() if name in shared}
    return config_without_code({**tables, "model": {**model, "cell": cell, **options}})


@pytest.fixture
def four_cells(tmp_path):
    """A table of the RRU, the GRU, the LSTM and JANET, which is the best, with four seeds each."""
    for entry in plans.load("table1", "cpu", tasks=["bach"], cells=["rru", "gru", "lstm"], seeds=range(4)).runs:
        write_run(tmp_path / "runs", entry.config, 8.0 + 0.1 * "RGL".index(entry.line[0]) + 0.01 * entry.seed**2)
        if entry.cell == "rru":
            write_run(tmp_path / "runs", like_the_rru(entry.config), 7.5 + 0.01 * entry.seed)
    return tmp_path


def test_the_best_cell_wins_even_if_its_code_is_not_there(four_cells):
    html = page(four_cells, csv=four_cells / "out.csv", markdown=four_cells / "out.md")
    assert "janet predicts unseen chorales best: NLL 7.52 against 8.04 for the RRU; significant, 4 seeds each." in (
        seen(html)
    )
    assert re.search(r'class="leader sure".*?"name">(\w+)<', html, re.DOTALL)[1] == "janet"
    assert "task RRU GRU LSTM Mogrifier LSTM janet best" in seen(html)
    assert "<strong>7.52 ± 0.01</strong>" in html
    assert report.write([four_cells / "runs"]).problems == ()
    rows = csv.DictReader((four_cells / "out.csv").read_text().splitlines())
    assert {row["line"] for row in rows if row["plan"] == "table1"} >= {"janet", "RRU"}
    assert "| janet | best |" in (four_cells / "out.md").read_text()


def test_loading_the_code_changes_nothing(four_cells, request):
    without = page(four_cells)
    request.getfixturevalue("own_cell")
    assert re.sub("<time.*?</time>", "", page(four_cells)) == re.sub("<time.*?</time>", "", without)


def test_code_in_a_run_folder_is_never_run(tmp_path):
    folder = write_run(tmp_path / "runs", like_the_rru(preset()), 7.5)
    (folder / "cell.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(3)\n")
    assert "janet reaches NLL 7.50 on JSB Chorales" in seen(page(tmp_path))
    assert not (tmp_path / "ran").exists()


def test_a_cell_with_changed_options_is_not_in_the_tables_of_a_preset(four_cells):
    config = plans.load("table1", "cpu", tasks=["bach"], cells=["rru"]).runs[0].config
    changed = write_run(four_cells / "runs", like_the_rru(config, forget_bias=0.5), 1.0)
    (run,) = gather([changed])
    assert (preset_of(run), origin(run).preset, origin(run).text) == ("own settings", "cpu", "forget_bias=0.5")
    said = seen(page(four_cells))
    assert "janet predicts unseen chorales best: NLL 7.52 against 8.04 for the RRU; significant, 4 seeds each." in said
    assert "task RRU GRU LSTM Mogrifier LSTM janet best" in said
    assert "Results with preset cpu, forget_bias=0.5: Bach chorales" in said


def test_the_command_for_a_users_cell_has_the_option_that_loads_it(tmp_path):
    folder = write_run(tmp_path / "runs", like_the_rru(preset()), 7.5)
    assert f"rru --code YOUR_CELL.py compose {folder}" in seen(page(tmp_path))


def test_users_cells_are_in_figures(tmp_path):
    for entry in plans.load("dropout-jsb", "cpu", cells=["rru"]).runs:
        write_run(tmp_path / "runs", entry.config, 9 + entry.point["model.dropout"])
        write_run(tmp_path / "runs", like_the_rru(entry.config), 8 + entry.point["model.dropout"])
    (section,) = [each for each in build([tmp_path / "runs"]).sections["cpu"] if each.plan.name == "dropout-jsb"]
    assert [len(points) for line, points in section.begun.items() if line == "janet"] == [10]
    assert "janet" in re.search(r'<svg[^>]*aria-label="Dropout: [^"]*', page(tmp_path))[0]


def test_settings_that_no_preset_has_are_in_a_table_of_their_own(tmp_path):
    config = preset("jsb", "rru", "cpu", 0, "lr=0.02")
    write_run(tmp_path / "runs", config, 8.0)
    write_run(tmp_path / "runs", like_the_rru(config), 7.5)
    for run in gather([tmp_path]):
        assert (preset_of(run), origin(run).preset, origin(run).text) == ("own settings", "cpu", "lr=0.02")
    said = seen(page(tmp_path))
    assert "janet predicts unseen chorales best: NLL 7.50 against 8.00 for the RRU; one seed each." in said
    assert "Results with preset cpu, lr=0.02: JSB Chorales" in said
    assert "task RRU janet best JSB Chorales" in said


def test_settings_that_differ_are_listed_but_not_ranked(tmp_path):
    write_run(tmp_path / "runs", preset("jsb", "rru", "cpu", 0, "lr=0.02", "budget=2M"), 7.5)
    write_run(tmp_path / "runs", preset("jsb", "gru", "cpu", 0, "lr=0.01"), 8.0)
    html = page(tmp_path)
    assert 'class="leader' not in html
    assert "<strong>7.50</strong>" not in html
    said = seen(html)
    assert "2 settings tried on JSB Chorales, not ranked since they differ: the best has NLL 7.50" in said
    assert "task RRU, budget=2M lr=0.02 GRU, lr=0.01 best JSB Chorales" in said
    assert "not ranked: settings differ" in said


def test_trials_with_changed_settings_have_no_winner_and_no_part_in_other_tables(tmp_path):
    write_run(tmp_path / "runs", preset("jsb", "rru", "smoke", 0, "lr=0.02"), 7.0)
    write_run(tmp_path / "runs", preset("jsb", "gru", "smoke", 0, "lr=0.02"), 7.5)
    write_run(tmp_path / "runs", preset("jsb", "rru", "cpu", 0, "lr=0.02"), 8.0)
    tables = [each for each in build([tmp_path / "runs"]).sections["own settings"] if each.plan.shows == "table"]
    assert [(each.terms, each.is_trial, each.verdict.best) for each in tables] == [
        ("preset cpu, lr=0.02", False, ""),
        ("preset smoke, lr=0.02", True, ""),
    ]


def test_a_changed_trial_does_not_come_before_the_preset(tmp_path):
    for cell in ("rru", "gru"):
        write_run(tmp_path / "runs", preset("bach", cell, "smoke"), 40.0)
    write_run(tmp_path / "runs", like_the_rru(preset("bach", "rru", "smoke"), forget_bias=0.5), 30.0)
    assert "Trial runs on Bach chorales work: 2 of 2 runs finished. 3 runs finished" in seen(page(tmp_path))


def test_the_same_trials_of_several_cells_are_one_table(tmp_path):
    for number in range(MAX_TABLES + 1):
        for cell in ("rru", "gru"):
            write_run(tmp_path / "runs", preset("jsb", cell, "cpu", 0, f"lr={0.01 + number / 1000:g}"), 8 + number / 10)
    table, _ = build([tmp_path / "runs"]).sections["own settings"]
    assert (table.terms, table.ranked) == ("changed settings of preset cpu", False)


def test_of_many_settings_the_best_of_each_cell_are_listed(tmp_path):
    for number in range(20):
        write_run(tmp_path / "runs", preset("jsb", "rru", "cpu", 0, f"lr={0.01 + number / 1000:g}"), 8 + number / 10)
    write_run(tmp_path / "runs", preset("jsb", "gru", "cpu", 0, "lr=0.5"), 99.0)
    table, _ = build([tmp_path / "runs"]).sections["own settings"]
    lines = list(table.lines)
    assert len(lines) == MAX_SETTINGS
    assert "GRU, lr=0.5" in lines
    assert "RRU, lr=0.01" in lines
    assert "RRU, lr=0.029" not in lines
    assert page(tmp_path).count('<tbody role="rowgroup" id="run-') == 21


def test_a_cell_named_as_one_of_the_paper_has_its_own_line(tmp_path):
    write_run(tmp_path / "runs", preset(), 8.0)
    write_run(tmp_path / "runs", like_the_rru(preset(), cell="RRU"), 7.5)
    table, _ = build([tmp_path / "runs"]).sections["paper"]
    assert {line: points[0].test for line, points in table.begun.items()} == {"RRU": 8.0, "RRU (your cell)": 7.5}


def test_an_option_that_is_no_number_or_word_is_named(tmp_path):
    write_run(tmp_path / "runs", preset(cell="gru"), 8.5)
    folder = write_run(tmp_path / "runs", like_the_rru(preset()), 7.5)
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("[model]", "[model]\nsizes = [1, 2]"))
    (problem,) = report.write([tmp_path / "runs"]).problems
    assert problem.startswith(f"{folder}: this version of rru does not know these settings (config.toml)")
    assert "model.sizes must be a number or a word, got [1, 2]" in problem
