"""Pictures of forecasts besides fans: errors by step, best and worst series, coverage by series."""

import pytest

from rru.report.forecasts import by_step, coverage, extremes, forecasts

FAN = {"name": "north", "history": [1.0, 2.0], "actual": [2.5], "quantiles": [[1.0, 2.0, 3.0, 4.0, 5.0]]}
STEPS = {"mase": [0.5, 0.75], "mase_last": [1.0, 2.0], "mase_seasonal": [0.9, 0.8]}
ENTRY = {"name": "north", "mase": 0.25, "coverage_80": 81.0, "mase_last": 2.0}
COVERAGE = {"series": 4, "low": 1, "high": 2, "histogram": [0, 1, 0, 0, 0, 0, 0, 0, 1, 2]}
DETAILS = {
    "target": "load",
    "fans": [FAN, {**FAN, "name": "south"}],
    "more_fans": [{**FAN, "name": "far"}],
    "steps": STEPS,
    "best": [ENTRY],
    "worst": [{**ENTRY, "name": "south", "mase": 3.5}],
    "coverage": COVERAGE,
}


def test_all_pictures_in_order_and_fans_of_the_best_and_worst_series():
    assert [picture.heading for picture in forecasts(DETAILS)] == [
        "Forecast of load, north",
        "Errors by step of the horizon",
        "Best and worst series",
        "Coverage by series",
        "Forecast of load, south",
        "Forecast of load, far",
    ]


def test_details_of_older_versions_have_fans_alone():
    older = {"target": "load", "fans": [FAN]}
    assert [picture.heading for picture in forecasts(older)] == ["Forecast of load, north"]


def test_errors_by_step_have_a_line_for_each_method():
    found = by_step(DETAILS)
    assert found.drawn.count('class="line ') == 3
    assert "step 2\nmodel: 0.750\nseasonal naive: 0.800\nlast value: 2.000" in found.drawn
    assert "has 0.50 at the first step and 0.75 at the last of 2" in found.caption


def test_best_and_worst_series_are_named_with_their_errors():
    found = extremes(DETAILS)
    assert found.drawn.index(">north<") < found.drawn.index(">south<")
    assert ">0.25<" in found.drawn
    assert ">3.50<" in found.drawn
    assert "in the 80 % interval: 81 %" in found.drawn
    assert "<b>" not in extremes({**DETAILS, "best": [{**ENTRY, "name": "<b>"}]}).drawn


def test_coverage_says_how_many_series_have_narrow_and_wide_intervals():
    found = coverage(DETAILS)
    assert "25 % of the series have less than 50 % inside: their intervals are too narrow." in found.caption
    assert "50 % have more than 95 %: too wide." in found.caption
    assert "90 to 100 % of the values inside\n2 of 4 series" in found.drawn


@pytest.mark.parametrize(
    "steps",
    [None, 7, {}, {"mase": [0.5]}, {"mase": [0.5, "a"]}, {"mase": [0.5, -1.0]}, {**STEPS, "mase_last": [1.0]}],
)
def test_malformed_or_single_steps_are_left_out(steps):
    assert by_step({"steps": steps}) is None


@pytest.mark.parametrize("entries", [None, 7, [], [7], [{"name": "a"}], [{"mase": float("nan")}], [{"mase": 1e308}]])
def test_malformed_series_are_left_out(entries):
    assert extremes({"best": entries, "worst": [ENTRY]}) is None
    assert extremes({"best": [ENTRY], "worst": entries}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"series": 1, "histogram": [1] + [0] * 9},
        {"series": 0, "histogram": [0] * 10},
        {"low": -1},
        {"high": 9},
        {"histogram": [4]},
        {"histogram": "abcdefghij"},
        {"histogram": [0.5] * 8 + [0, 0]},
        {"series": None},
    ],
)
def test_malformed_coverage_is_left_out(change):
    assert coverage({"coverage": {**COVERAGE, **change}}) is None
    assert coverage({"coverage": 7}) is None
