"""Files of older versions are still read: `tests/golden` has config ids, runs and an exported model of 0.1.

It also has a run on series of version 0.2, with its table and its forecast.
"""

import csv
import json
import shutil
import tomllib
from pathlib import Path

import pytest
import torch

import rru
from rru import inference, report
from rru.experiments.search.study import Study
from rru.settings import Config, presets
from rru.training import Evaluated, Run, evaluate, train_config

GOLDEN = Path(__file__).parent / "golden"
FINISHED = GOLDEN / "runs" / "bach" / "rru" / "045be2e0ce4b"
KILLED = GOLDEN / "runs" / "bach" / "lstm" / "4624ec35372f"
IDS = json.loads((GOLDEN / "ids.json").read_bytes())
RESULTS = Path(__file__).parents[1] / "docs" / "results" / "runs"
NEXT_VALIDATION = 52.4899478  # of the killed run, had it not been killed


@pytest.fixture
def runs(tmp_path):
    """A copy of the golden runs, to be written to."""
    return Path(shutil.copytree(GOLDEN / "runs", tmp_path / "runs"))


def test_every_preset_has_its_id():
    found = {
        f"{task} {cell} {size}": presets.load(task, cell, size).id
        for task in presets.tasks()
        for size in presets.names(task)
        for cell in presets.cells()
    }
    assert found == IDS["presets"]


@pytest.mark.parametrize(("task", "cell", "size", "changes", "config_id"), IDS["changed"])
def test_a_changed_preset_has_its_id(task, cell, size, changes, config_id):
    assert presets.override(presets.load(task, cell, size), changes).id == config_id


@pytest.mark.parametrize(("task", "cell", "size", "changes", "seed", "prune", "name", "first"), IDS["studies"])
def test_a_search_has_its_folder_and_tries_the_same(task, cell, size, changes, seed, prune, name, first, tmp_path):
    study = Study(task, cell, size, changes=changes, seed=seed, prune=prune, root=tmp_path)
    assert study.folder.name == name
    (trial,) = study._proposals.extend(1)
    assert trial.params == first


@pytest.mark.parametrize("root", [GOLDEN / "runs", RESULTS], ids=["golden", "docs"])
def test_a_runs_folder_is_named_by_its_config(root):
    folders = [path.parent for path in root.glob("*/*/*/config.toml")]
    assert folders
    for folder in folders:
        config = Config.of(tomllib.loads((folder / "config.toml").read_text()))
        assert folder.parts[-3:] == (config.task.name, config.model.cell, config.id)


def test_finished_run_is_not_retrained_and_evaluates_the_same(runs):
    folder = runs / FINISHED.relative_to(GOLDEN / "runs")
    before = json.loads((folder / "result.json").read_bytes())
    result = train_config(Run(folder).config, folder, stop=pytest.fail)
    assert (result.status, result.test) == ("finished", before["test"])
    assert evaluate(folder, "test") == pytest.approx(before["test"], rel=1e-5)


def test_killed_run_resumes_from_its_checkpoint(runs):
    folder = runs / KILLED.relative_to(GOLDEN / "runs")
    seen = []
    result = train_config(
        Run(folder).config,
        folder,
        watch=lambda event: seen.append(event) if isinstance(event, Evaluated) else None,
        stop=lambda: bool(seen),
    )
    assert (result.status, seen[0].epoch) == ("stopped", 7)
    assert seen[0].validation["nll"] == pytest.approx(NEXT_VALIDATION, rel=1e-5)


def test_config_round_trips(tmp_path):
    for folder in (FINISHED, KILLED):
        run = Run.create(tmp_path / folder.name, Run(folder).config)
        assert (run.path / "config.toml").read_bytes() == (folder / "config.toml").read_bytes()


def test_runs_are_reported(tmp_path):
    summary = report.write([GOLDEN / "runs"], tmp_path / "report.html")
    assert (summary.statuses, summary.problems) == ({"stopped": 1, "finished": 1}, ())


@pytest.fixture
def series(tmp_path, monkeypatch):
    """A copy of a run on series of version 0.2, and its table."""
    monkeypatch.chdir(shutil.copytree(GOLDEN / "series", tmp_path / "series"))
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    return Path("run")


def test_a_model_of_series_of_version_0_2_forecasts_the_same(series, tmp_path):
    rru.load(series).forecast("shops.csv").save(tmp_path / "again.csv")
    again, before = (
        list(csv.reader(path.read_text().splitlines())) for path in (tmp_path / "again.csv", Path("forecast.csv"))
    )
    assert [row[:2] for row in again] == [row[:2] for row in before]
    for new, old in zip(again[1:], before[1:], strict=True):
        assert [float(value) for value in new[2:]] == pytest.approx([float(value) for value in old[2:]], rel=1e-4)


def test_a_model_of_series_of_version_0_2_still_reads_gaps_as_the_value_before(series):
    head, *rows = (line.split(",") for line in Path("shops.csv").read_text().splitlines())
    rows = [
        [day, shop, "" if number % 37 in range(5, 10) else sales, promotion]
        for number, (day, shop, sales, promotion) in enumerate(rows)
    ]
    Path("gaps.csv").write_text("\n".join(map(",".join, [head, *rows])))
    north, south = rru.load(series).forecast("gaps.csv")
    assert north.quantiles[[0, -1], 2] == pytest.approx([35.952665, 44.030982], rel=1e-4)
    assert south.quantiles[[0, -1], 2] == pytest.approx([113.295035, 95.396472], rel=1e-4)


def test_a_model_of_series_of_version_0_2_is_not_trained_evaluated_or_exported(series, tmp_path):
    trained = rru.load(series)
    (series / "result.json").unlink()
    for action in (
        lambda: train_config(trained.config, series),
        lambda: trained.evaluate(),
        lambda: trained.evaluate("shops.csv"),
        lambda: trained.export(tmp_path / "exported"),
        lambda: trained.export(tmp_path / "exported", "torch-export"),
    ):
        with pytest.raises(ValueError, match=r"models? of series of version 0\.2 .*; train again"):
            action()
    assert not (tmp_path / "exported").exists()


def test_a_run_of_series_of_version_0_2_is_reported(series, tmp_path):
    assert report.write([series], tmp_path / "report.html").statuses == {"finished": 1}


def test_run_and_export_give_the_same_model(tmp_path):
    run, exported = rru.load(FINISHED), rru.load(GOLDEN / "model")
    inputs = torch.randint(2, (5, 2, 88)).float()
    assert run.model(inputs)[0].equal(exported.model(inputs)[0])
    inference.export(run, tmp_path / "again", "safetensors")
    assert rru.load(tmp_path / "again").config == run.config == exported.config
    again, golden = (folder / "model.safetensors" for folder in (tmp_path / "again", GOLDEN / "model"))
    assert again.read_bytes() == golden.read_bytes()
