"""Which run a command means."""

import os
from pathlib import Path

import pytest

from rru.cli.places import by_date, is_run, named_run, shortest_name
from rru.settings import presets
from rru.training import Run, RunError

IDS = ("1a08768f665c", "1a99768f665c", "7b00768f665c")


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Three runs, the second of which was changed last, and a damaged one after it."""
    monkeypatch.chdir(tmp_path)
    root = Path("runs")
    for name, date in zip((*IDS, "damaged"), (1, 3, 2, 4), strict=True):
        file = Run.create(root / "bach" / "rru" / name, presets.load("bach", "rru", "smoke")).path / "config.toml"
        if name == "damaged":
            file.write_text("x")
        os.utime(file, (date, date))
    return root


def test_latest_is_the_run_that_was_changed_last(runs):
    assert named_run("latest", runs) == runs / "bach" / "rru" / IDS[1]
    assert [folder.name for folder in by_date(runs)] == [IDS[1], IDS[2], IDS[0]]


def test_the_start_of_an_id_is_enough_if_no_other_id_has_it(runs):
    assert named_run("7", runs) == runs / "bach" / "rru" / IDS[2]
    with pytest.raises(RunError, match=f"1a: is the start of 2 ids; write more of it: .*{IDS[1]}, .*{IDS[0]}"):
        named_run("1a", runs)


def test_a_folder_is_always_a_run_of_its_own_name(runs, tmp_path):
    Run.create(tmp_path / "latest", presets.load("bach", "rru", "smoke"))
    assert named_run("latest", runs) == Path("latest")
    assert named_run(f"runs/bach/rru/{IDS[0]}", runs) == runs / "bach" / "rru" / IDS[0]
    assert named_run("no/such", runs) == Path("no/such")


def test_an_error_lists_the_runs_there_are(runs):
    with pytest.raises(RunError, match=rf"zz: is not a run: .* no id starts with it; runs in runs: runs/.*{IDS[1]}, "):
        named_run("zz", runs)
    with pytest.raises(RunError, match=r"latest: is not a run: .* there are no runs in elsewhere"):
        named_run("latest", Path("elsewhere"))


def test_a_task_is_not_taken_for_a_run(runs):
    assert [is_run(name, runs) for name in ("bach", "novel.txt", "runs", "no/such")] == [False] * 4
    assert [is_run(name, runs) for name in ("latest", "1a", f"runs/bach/rru/{IDS[0]}")] == [True] * 3


def test_commands_to_type_are_as_short_as_they_can_be(runs):
    latest, other = (runs / "bach" / "rru" / name for name in (IDS[1], IDS[0]))
    assert shortest_name(latest, runs) == ["latest"]
    assert shortest_name(other, runs) == [str(other)]
    runs.rename("elsewhere")
    moved = Path("elsewhere") / "bach" / "rru" / IDS[1]
    assert shortest_name(moved, Path("elsewhere")) == ["latest", "--runs", "elsewhere"]
