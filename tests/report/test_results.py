"""What the page, the CSV and the Markdown say is what result files hold."""

import csv
import json
import re

import pytest

from rru.experiments import plans
from rru.report.gather import gather
from rru.report.identify import line_of, origin, preset_of
from rru.report.results import build
from rru.report.tables import tables
from tests.report.samples import page, preset, text_of, write_run


def test_table_shows_the_papers_numbers(tmp_path):
    for cell, test in {"rru": 7.8549, "lstm": 8.1}.items():
        write_run(tmp_path / "runs", preset(cell=cell), test)
    said = text_of(page(tmp_path))
    assert "7.85 paper 7.72 +0.13 worse" in said
    assert "8.10 paper 8.33 \N{MINUS SIGN}0.23 better" in said
    assert "\N{EN DASH} paper 8.20" in said  # the GRU was not run
    assert "No runs of GRU, Mogrifier LSTM." in said
    assert "7.8549" in said  # among all runs, with more digits
    assert "chose their settings on the test split" in said


def test_grid_shows_begun_cells_and_names_missing_ones(tmp_path):
    entries = plans.load("robustness-jsb", "cpu").runs
    for number, entry in enumerate(each for each in entries if each.cell == "rru"):
        if number:
            write_run(tmp_path / "runs", entry.config, 8.0 + number / 10)
    html = page(tmp_path)
    assert len(re.findall(r'aria-label="RRU: [^"]*Learning rate across', html)) == 2  # test, and best epoch
    assert 'aria-label="LSTM: ' not in html
    assert "24 of 25 settings have a result; 1 missing. No runs of GRU, LSTM, Mogrifier LSTM." in html


def test_curve_shows_every_point(tmp_path):
    entries = [each for each in plans.load("dropout-jsb", "cpu").runs if each.cell == "rru"]
    for number, entry in enumerate(entries):
        write_run(tmp_path / "runs", entry.config, 30.0 if number == len(entries) - 1 else 8.0 + number / 10)
    chart = re.search(r'<svg[^>]*aria-label="Dropout.*?</svg>', page(tmp_path), re.DOTALL)[0]
    assert chart.count('class="mark"') == len(entries) == 10


def test_single_seed_winner_is_bold_and_labelled(tmp_path):
    for cell, test in {"rru": 7.85, "lstm": 8.1}.items():
        write_run(tmp_path / "runs", preset(cell=cell), test)
    html = page(tmp_path)
    assert "<strong>7.85</strong>" in html
    assert "<strong>8.10</strong>" not in html
    assert "RRU: one seed each, not significant" in text_of(html)


def test_seeds_are_averaged(tmp_path):
    for seed, test in enumerate((8.0, 8.2, 8.4, 8.6, 8.8)):
        write_run(tmp_path / "runs", preset(seed=seed), test)
    said = text_of(page(tmp_path))
    assert "8.40 ± 0.32 5 seeds paper 7.72 +0.68 worse" in said


def test_presets_are_kept_apart(tmp_path):
    write_run(tmp_path / "runs", preset(name="paper"), 7.8)
    write_run(tmp_path / "runs", preset(name="smoke"), 50.0)
    html = page(tmp_path)
    assert re.findall(r'<section class="chapter" id="([\w-]+)"', html) == ["preset-paper", "preset-smoke"]
    smoke = html[html.index('id="preset-smoke"') :]
    assert "The numbers say nothing about the cells." in smoke
    assert "50.00" in smoke[: smoke.index("</section>")]
    assert "7.80" not in smoke[: smoke.index("</section>")]


def test_paper_is_mentioned_only_with_its_numbers(tmp_path):
    for cell, test in {"rru": 6.0, "lstm": 7.0}.items():
        write_run(tmp_path / "runs", preset("bach", cell, "demo"), test)
    assert "the paper" not in text_of(page(tmp_path, markdown=tmp_path / "out.md")).lower()
    assert "the paper" not in (tmp_path / "out.md").read_text().lower()
    write_run(tmp_path / "runs", preset(), 7.8)
    assert "Below it, the paper's number and the difference" in text_of(page(tmp_path))


def test_settings_that_differ_from_a_preset_are_named(tmp_path):
    config = preset("jsb", "rru", "cpu", 3, "lr=0.123", "budget=2M")
    (run,) = gather([write_run(tmp_path / "runs", config)])
    assert (origin(run).preset, origin(run).text) == ("cpu", "budget=2M lr=0.123")
    assert "changed: budget=2M lr=0.123" in text_of(page(tmp_path))
    (as_preset,) = gather([write_run(tmp_path / "other", preset(seed=7))])
    assert (origin(as_preset).preset, origin(as_preset).text) == ("paper", "")


def test_a_setting_changed_to_its_default_is_shown_with_its_value(tmp_path):
    write_run(tmp_path, preset("jsb", "rru", "nade", 0, "output=independent", "epochs=3"), 7.0)
    (run,) = gather([tmp_path])
    assert "output=independent" in origin(run).text


def test_diverged_seed_does_not_count(tmp_path):
    write_run(tmp_path / "runs", preset(seed=0), 8.0)
    write_run(tmp_path / "runs", preset(seed=1), 99.0, status="diverged", reason="the training loss became nan")
    write_run(tmp_path / "runs", preset(cell="gru", seed=0), 9.0)
    html = page(tmp_path)
    assert "8.00 1 diverged paper 7.72" in text_of(html)
    assert "<strong>8.00</strong>" not in html
    assert "Diverged: the training loss became nan." in html


def test_copied_run_counts_once(tmp_path):
    write_run(tmp_path / "runs", preset(), 8.0)
    write_run(tmp_path / "runs", preset(), 8.5, folder=tmp_path / "runs" / "zcopy")
    (point, *_) = build([tmp_path / "runs"]).sections["paper"][0].points
    assert point.tests == {0: 8.0}
    assert "has the same settings and seed" in page(tmp_path)


def test_ended_copy_counts_first(tmp_path):
    write_run(tmp_path / "runs", preset(), None, folder=tmp_path / "runs" / "a")
    write_run(tmp_path / "runs", preset(), 8.5, folder=tmp_path / "runs" / "b")
    (point, *_) = build([tmp_path / "runs"]).sections["paper"][0].points
    assert point.tests == {0: 8.5}


def test_a_folder_named_twice_counts_once(tmp_path):
    write_run(tmp_path / "runs", preset(), 8.0)
    roots = [tmp_path / "runs", tmp_path / "runs" / "jsb", tmp_path / "runs" / ".." / "runs", tmp_path]
    assert len(gather(roots)) == 1
    assert build(roots).notes == ()


def test_presets_of_runs(tmp_path):
    dropout = plans.load("dropout-jsb", "cpu").runs[3].config
    for config, name in (
        (preset(seed=5), "paper"),
        (preset(name="cpu"), "cpu"),
        (preset("bach", "rru", "demo"), "demo"),
        (dropout, "cpu"),
        (preset("jsb", "rru", "cpu", 0, "lr=0.123"), "own settings"),
    ):
        (run,) = gather([write_run(tmp_path / config.id, config)])
        assert preset_of(run) == name


def test_the_demonstrations_runs_are_compared(tmp_path):
    for cell, test in {"rru": 6.0, "lstm": 7.0}.items():
        write_run(tmp_path / "runs", preset("bach", cell, "demo"), test)
    html = page(tmp_path)
    assert "<strong>6.00</strong>" in html
    assert "validation NLL after each epoch, a line each for RRU, LSTM;" in html
    assert 'data-tip="RRU\n' in html
    assert 'data-label="RRU"' in html
    assert "All with output nade. " in text_of(html)
    assert "No runs of GRU, Mogrifier LSTM." in html


def test_joint_outputs_have_their_own_lines_without_the_papers_numbers(tmp_path):
    write_run(tmp_path / "runs", preset(), 7.85)
    write_run(tmp_path / "runs", preset("jsb", "rru", "paper", 0, "output=nade"), 4.86)
    write_run(tmp_path / "runs", preset("jsb", "rru", "nade"), 4.57)
    write_run(tmp_path / "runs", preset("jsb", "rru", "nade", 0, "output=chain", "output_units=none"), 6.1)
    write_run(tmp_path / "runs", preset("jsb", "lstm", "nade"), 4.98)
    found = gather([tmp_path / "runs"])
    assert {(preset_of(run), line_of(run)) for run in found} == {
        ("paper", "RRU"),
        ("own settings", "RRU, nade"),
        ("nade", "RRU, nade"),
        ("nade", "RRU, chain"),
        ("nade", "LSTM, nade"),
    }
    sections = build([tmp_path / "runs"]).sections
    assert {point.test for section in sections["paper"] for point in section.points if point.runs} == {7.85}
    (table,) = (section for section in sections["nade"] if section.plan.shows == "table")
    assert not table.plan.in_paper
    assert {point.line: point.test for point in table.points if point.runs} == {
        "RRU, nade": 4.57,
        "RRU, chain": 6.1,
        "LSTM, nade": 4.98,
    }
    said = text_of(page(tmp_path))
    assert "7.85 paper 7.72" in said
    assert "4.57 paper" not in said
    assert "RRU, nade RRU, chain" in said


def test_runs_in_bfloat16_have_lines_of_their_own(tmp_path):
    narrow = "precision=bf16"
    write_run(tmp_path / "runs", preset("jsb", "rru", "nade"), 4.57)
    write_run(tmp_path / "runs", preset("jsb", "rru", "nade", 1, narrow), 4.58)
    write_run(tmp_path / "runs", preset("jsb", "lstm", "nade", 0, narrow), 4.98)
    write_run(tmp_path / "runs", preset("jsb", "rru", "paper", 0, narrow, "lr=0.02"), 7.9)
    found = gather([tmp_path / "runs"])
    assert {(preset_of(run), line_of(run), origin(run).text) for run in found} == {
        ("nade", "RRU, nade", ""),
        ("nade", "RRU, nade, bf16", "precision=bf16"),
        ("nade", "LSTM, nade, bf16", "precision=bf16"),
        ("own settings", "RRU", "lr=0.02 precision=bf16"),
    }
    (table,) = (section for section in build([tmp_path / "runs"]).sections["nade"] if section.plan.shows == "table")
    assert {point.line: point.test for point in table.points if point.runs} == {
        "RRU, nade": 4.57,
        "RRU, nade, bf16": 4.58,
        "LSTM, nade, bf16": 4.98,
    }
    said = text_of(page(tmp_path))
    assert "All with output nade. " in said
    assert "LSTM, bf16" in said
    assert "No runs of GRU, Mogrifier LSTM." in said


def test_table_has_columns_for_outputs_of_a_single_task(tmp_path):
    write_run(tmp_path / "runs", preset("nottingham", "rru", "nade"), 1.98)
    write_run(tmp_path / "runs", preset("jsb", "rru", "nade"), 4.57)
    write_run(tmp_path / "runs", preset("jsb", "rru", "nade", 0, "output=chain", "output_units=none"), 6.1)
    (table,) = tables(build([tmp_path / "runs"]).sections["nade"])
    assert table.lines == ["RRU, nade", "RRU, chain", "GRU, nade", "LSTM, nade", "Mogrifier LSTM, nade"]
    for row, tests in zip(table.rows, ({"RRU, nade": 4.57, "RRU, chain": 6.1}, {"RRU, nade": 1.98}), strict=True):
        assert [entry.point.line for entry in row.entries] == table.lines
        assert {entry.point.line: entry.point.test for entry in row.entries if entry.point.test} == tests


def test_differences_are_judged_only_at_the_papers_settings(tmp_path):
    write_run(tmp_path / "runs", preset(name="cpu"), 8.72)
    said = text_of(page(tmp_path))
    assert "8.72 paper 7.72 +1.00" in said
    assert "worse" not in said.replace("or worse", "")


def test_every_plan_is_matched_on_every_task(tmp_path):
    for name in plans.names():
        for task in plans.tasks(name, "smoke"):
            entry = plans.load(name, "smoke", tasks=[task]).runs[-1]
            (run,) = gather([write_run(tmp_path / name / task, entry.config, 50.0)])
            assert (preset_of(run), line_of(run)) == ("smoke", entry.line)


def test_plan_without_new_runs_is_hidden(tmp_path):
    for cell in ("rru", "gru"):
        write_run(tmp_path / "runs", preset("ptb-chars", cell), 1.3)  # also points of the dropout plan
    names = [section.plan.name for section in build([tmp_path / "runs"]).sections["paper"]]
    assert names == ["table1", "convergence"]


def test_csv_holds_every_number(tmp_path):
    for seed, test in enumerate((7.8, 7.9)):
        write_run(tmp_path / "runs", preset(seed=seed), test)
    page(tmp_path, csv=tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    runs = [row for row in rows if row["kind"] == "run"]
    assert sorted((row["seed"], row["test"], row["preset"], row["tokens"]) for row in runs) == [
        ("0", "7.8", "paper", "12345"),
        ("1", "7.9", "paper", "12345"),
    ]
    (point,) = [row for row in rows if row["plan"] == "table1" and row["line"] == "RRU"]
    assert float(point["test"]) == pytest.approx(7.85)
    assert float(point["difference"]) == pytest.approx(7.85 - 7.72)
    assert (point["paper"], point["seeds"], point["metric"]) == ("7.72", "2", "nll")


def test_markdown_holds_the_same_tables(tmp_path):
    write_run(tmp_path / "runs", preset(), 7.8549)
    page(tmp_path, markdown=tmp_path / "out.md")
    text = (tmp_path / "out.md").read_text()
    assert "| JSB Chorales (NLL) | 7.85, paper 7.72, +0.13 | \N{EN DASH}, paper 8.20 |" in text
    assert "| 7.8549 |" in text
    widths = {line.count(" | ") for line in text.split("## All runs")[1].splitlines() if line}
    assert len(widths) == 1


def test_higher_accuracy_is_better(tmp_path):
    for cell, test in {"rru": 87.5, "gru": 86.0}.items():
        write_run(tmp_path / "runs", preset("imdb", cell), test)
    html = page(tmp_path)
    assert "<strong>87.50</strong>" in html
    assert "+0.30 better" in html
    assert "\N{MINUS SIGN}1.04 worse" in html


def test_music_of_a_run_is_on_the_page(tmp_path):
    folder = write_run(tmp_path / "runs", preset())
    (folder / "music").mkdir()
    (folder / "music" / "roll.png").write_bytes(b"\x89PNG picture")
    (folder / "music" / "piece.wav").write_bytes(b"RIFF sound")
    html = page(tmp_path)
    assert 'src="data:image/png;base64,iVBORyBwaWN0dXJl"' in html
    assert 'src="data:audio/wav;base64,UklGRiBzb3VuZA=="' in html


def test_only_the_page_is_written(tmp_path):
    write_run(tmp_path / "runs", preset())
    write_run(tmp_path / "runs", preset(seed=1), None)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    page(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")} == before
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "page.html"}


def test_the_best_of_all_epochs_has_a_column_only_if_a_run_tested_them(tmp_path):
    folder = write_run(tmp_path / "runs", preset())
    assert "best of all epochs by test" not in page(tmp_path)
    epochs = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [json.dumps({**epoch, "test": {"nll": 7.5}}) for epoch in epochs]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    assert "best of all epochs by test" in page(tmp_path)
