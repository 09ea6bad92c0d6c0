"""What scores say in words."""

import json

import pytest

from rru.cli.results import summary
from rru.settings import presets
from rru.training import Run

FORECAST = {"mase": 0.6, "mase_last": 2.0, "mase_seasonal": 1.0, "mae": 8.3, "mae_last": 20.0, "mae_seasonal": 13.4}


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", presets.load("bach", "rru", "smoke"))


def series(run, season, unit, names=("",)):
    """Give a run the facts of series."""
    scaling = {"centre": 0.0, "deviation": 1.0, "spread": 1.0, "unit": 1.0, "naive": 1.0, "floor": None}
    columns = {name: [] for name in ("past", "known", "calendar", "means", "deviations")}
    layout = {"target": "load", "time": "day", "id": None, **columns, "levels": {}, "frequency": unit}
    facts = {
        "layout": layout,
        "series": dict.fromkeys(names, scaling),
        "horizon": 4,
        "season": season,
        "base": "seasonal",
    }
    (run.path / "data.json").write_text(json.dumps(facts))


def test_an_error_is_shown_beside_that_of_the_better_simple_forecast(run):
    series(run, 7, "D")
    assert summary("mase", FORECAST, run.path) == "mean absolute error 8.3; repeating last week 13.4 (38 % better)"
    series(run, 24, "h")
    assert "repeating the last day 13.4" in summary("mase", FORECAST, run.path)
    series(run, 9, "D")
    assert "repeating the last 9 steps 13.4" in summary("mase", FORECAST, run.path)


def test_errors_of_several_series_are_scaled_before_they_are_averaged(run):
    series(run, 7, "D", names=("small", "large"))
    assert summary("mase", FORECAST, run.path) == "MASE 0.6; repeating last week 1 (40 % better)"
    assert summary("mase", {**FORECAST, "mase": 1.1}, run.path).startswith("MASE 1.100; last value 2.000")


def test_a_model_that_does_not_beat_the_simple_forecasts_says_so(run):
    series(run, 7, "D")
    text = summary("mase", {**FORECAST, "mase": 1.1, "mae": 14.0}, run.path)
    assert text.startswith("mean absolute error 14; repeating last week 13.4. MASE 1.100;")
    assert text.endswith("the model does not beat the simple forecasts; use those")


def test_right_answers_are_counted_if_the_counts_are_those_of_the_score(run):
    run.write_details({"classes": ["a", "b"], "confusion": [[13, 1], [0, 13]]})
    assert summary("accuracy", {"accuracy": 100 * 26 / 27}, run.path) == (
        "96.3 % right (26 of 27); the commonest class: 52 %"
    )
    assert summary("accuracy", {"accuracy": 50.0}, run.path) == "50.0 % right"
    assert summary("accuracy", {"accuracy": 100 * 26 / 27}, run.path, counts=False) == "96.3 % right"


def test_files_of_others_may_hold_anything(run):
    assert summary("{0.__class__}", {"{0.__class__}": 1.0}, run.path) == "{0.__class__} 1.0000"
    assert "repeating the last season 13.4" in summary("mase", FORECAST, run.path)
    few = {name: value for name, value in FORECAST.items() if name.startswith("mase")}
    assert summary("mase", few, run.path).startswith("MASE 0.600")
