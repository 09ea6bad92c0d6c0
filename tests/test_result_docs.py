"""The pages of results say what the files of their runs hold."""

import re
import runpy
import shlex
from collections import Counter
from pathlib import Path

import pytest

from rru import report
from rru.experiments import plans
from rru.report.gather import gather
from rru.report.identify import preset_of

ROOT = Path(__file__).parents[1]


def test_result_tables_match_the_run_files(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    for document, text in runpy.run_path(str(ROOT / "tools" / "make_results.py"))["pages"]().items():
        assert document.read_text() == text, "python tools/make_results.py"


def test_result_pages_match_the_run_files(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    report.write(["docs/results/runs"], tmp_path / "report.html", markdown=tmp_path / "report.md")
    for name in ("report.html", "report.md"):
        made, kept = (
            re.sub(r"<time.*?</time>", "", (place / name).read_text()) for place in (tmp_path, ROOT / "docs/results")
        )
        assert made == kept, "python tools/make_results.py"


@pytest.fixture(scope="module")
def kept_runs():
    """The runs behind docs/results.md."""
    return gather([ROOT / "docs/results/runs"])


def test_the_seeds_of_each_cell_are_those_of_the_run_files(kept_runs):
    counts = Counter((run.known.title, run.cell) for run in kept_runs if preset_of(run) == "paper" and run.counts)
    rows = re.findall(r"^\| ([^|]+) \(\w+\) \|.*\| ([\d, ]+) \|$", (ROOT / "docs/results.md").read_text(), re.MULTILINE)
    assert len(rows) == 4
    for task, seeds in rows:
        each = [counts[task, cell] for cell in ("rru", "gru", "lstm", "mogrifier")]
        assert seeds == (", ".join(map(str, each)) if len(set(each)) > 1 else str(each[0]))
        if len(set(each)) > 1:
            words = "RRU {}, GRU {}, LSTM {} and Mogrifier LSTM {} on ".format(*each) + task
            for name in ("README.md", "docs/results.md"):
                assert words in " ".join((ROOT / name).read_text().split())


@pytest.mark.parametrize("name", ["docs/results.md", "docs/lab/2026-11-results.md"])
def test_the_commands_that_reproduce_table_1_train_every_seed_of_its_means(kept_runs, name):
    kept = {run.known.id for run in kept_runs if preset_of(run) == "paper" and run.counts}
    between = (ROOT / name).read_text().partition("<!-- reproduce -->")[2].partition("<!-- end -->")[0]
    trained = set()
    for line in re.findall("^rru run table1 .*", between, re.MULTILINE):
        words = shlex.split(line)
        given = dict(zip(words[3::2], words[4::2], strict=True))
        cells = given["--cells"].split(",") if "--cells" in given else None
        seeds = plans.seeds_of(given["--seeds"])
        plan = plans.load("table1", "paper", tasks=given["--tasks"].split(","), cells=cells, seeds=seeds)
        trained |= {run.id for run in plan.runs}
    assert trained == kept


def test_every_number_of_other_tasks_has_its_run_files(kept_runs):
    titles = {run.known.title.lower() for run in kept_runs if preset_of(run) != "paper"}
    table = (ROOT / "docs/results.md").read_text().partition("| test score | RRU |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([^|:]+): [^|]+ \| ([\d.]+)", table, re.MULTILINE)
    assert len(rows) == 3
    for title, test in rows:
        assert title.lower() in titles
        digits = len(test.partition(".")[2])
        found = {f"{run.test:.{digits}f}" for run in kept_runs if run.known.title == title and run.cell == "rru"}
        assert test in found


def test_the_readme_says_that_sizes_differ():
    text = " ".join((ROOT / "README.md").read_text().split())
    assert "on JSB Chorales, RRU 6.9M, GRU 1.8M, LSTM 1.3M and Mogrifier LSTM 1.3M parameters" in text
    assert "the RRU reaches a median of 4.56 there and the runner-up, the GRU, 4.77" in text
