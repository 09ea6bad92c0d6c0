"""What a run on series keeps for the report, besides its scores."""

import json

import numpy as np
import pytest
import torch

from rru import data, tasks
from rru.settings import presets

DAYS = np.arange("2026-01-01", "2026-05-31", dtype="datetime64[D]")
NAMES = [f"place {number}" for number in range(9)]
HORIZON = 3


def noise(number):
    return {7: 6.0, 8: 0.01}.get(number, 0.3)  # the last is the easiest series, the one before the hardest


def made(tmp_path, names):
    draw = np.random.default_rng(0)
    rows = ["day,load,place"]
    for number, name in enumerate(names):
        values = 100 + 3 * np.sin(2 * np.pi * np.arange(len(DAYS)) / 7) + draw.normal(0, 0.3, len(DAYS))
        values[-30:] = 100 + 3 * np.sin(2 * np.pi * np.arange(len(DAYS)) / 7)[-30:] + draw.normal(0, noise(number), 30)
        rows += [f"{day},{value:.5f},{name}" for day, value in zip(DAYS, values, strict=True)]
    (tmp_path / "loads.csv").write_text("\n".join(rows))
    own = data.from_csv(tmp_path / "loads.csv", target="load", horizon=HORIZON, id="place")
    config = presets.load(own, "rru", "smoke")
    task = tasks.make(config.task, own=own)
    torch.manual_seed(0)
    return task, task.model("rru", config.model.arguments, config.model.budget)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))


def test_errors_by_step_average_to_the_scores(tmp_path):
    task, model = made(tmp_path, NAMES)
    details, scores = task.details(model), task.evaluate(model, "test")
    for name in ("mase", "mase_last", "mase_seasonal"):
        assert len(details["steps"][name]) == HORIZON
        assert np.mean(details["steps"][name]) == pytest.approx(scores[name], rel=1e-4)
    json.dumps(details, allow_nan=False)


def test_the_best_and_worst_series_are_named_and_have_fans(tmp_path):
    details = (lambda task, model: task.details(model))(*made(tmp_path, NAMES))
    assert details["best"][0]["name"] == NAMES[8]
    assert details["worst"][0]["name"] == NAMES[7]
    assert [fan["name"] for fan in details["fans"]] == NAMES[:6]
    assert [fan["name"] for fan in details["more_fans"]] == [NAMES[7], NAMES[8]]
    assert [len(details[key]) for key in ("best", "worst")] == [3, 3]
    assert details["coverage"]["series"] == sum(details["coverage"]["histogram"]) == 9
    covered = [entry["coverage_80"] for entry in details["worst"]]
    assert details["coverage"]["low"] >= sum(share < 50 for share in covered) >= 1


def test_one_series_has_no_best_and_no_worst(tmp_path):
    details = (lambda task, model: task.details(model))(*made(tmp_path, NAMES[:1]))
    assert set(details) == {"target", "fans", "steps"}


def test_data_json_keeps_where_the_parts_of_each_series_are(tmp_path):
    task, _ = made(tmp_path, NAMES[:2])
    facts = type(task.facts).of(json.loads(json.dumps(task.facts.fields())))
    assert facts.splits == ((120, 135, 150), (120, 135, 150))
    older = {name: value for name, value in task.facts.fields().items() if name != "splits"}
    assert type(task.facts).of(older).splits == ()
    for wrong in ([[1, 2, 3]], [[1, 2], [1, 2]], [[3, 2, 1], [1, 2, 3]], [["a", 2, 3], [1, 2, 3]], 7):
        with pytest.raises(ValueError, match="splits must have three increasing numbers of steps for each series"):
            type(task.facts).of({**older, "splits": wrong})
