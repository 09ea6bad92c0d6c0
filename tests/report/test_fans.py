"""Forecast fans of the page."""

import pytest

from rru.report.fans import fans

ROWS = [[1.0, 2.0, 3.0, 4.0, 5.0], [0.5, 2.0, 3.5, 5.0, 7.0]]
FAN = {"name": "north", "history": [1.0, None, 2.0], "actual": [2.5, 9.0], "quantiles": ROWS}


def test_a_fan_shows_known_values_intervals_and_what_came_true():
    (found,) = fans({"target": "load", "fans": [FAN]})
    assert found.heading == "Forecast of load, north"
    assert "1 of 2 in the 80 % interval" in found.caption
    assert found.drawn.count('class="band series-0"') == 2
    assert found.drawn.count('class="truth"') == 2
    assert "came true: 9" in found.drawn


def test_a_fan_has_dates_and_a_simple_forecast():
    times = [f"2026-01-0{day}" for day in range(1, 6)]
    (found,) = fans({"target": "load", "fans": [{**FAN, "times": times, "seasonal": [1.5, 2.5], "last": [2.0, 2.0]}]})
    assert ">2026-01-01</text>" in found.drawn
    assert ">2026-01-05</text>" in found.drawn
    assert "2026-01-04\nforecast: 3" in found.drawn
    assert "\nseasonal naive: 1.5" in found.drawn
    assert found.drawn.count('class="line baseline"') == 1
    assert "the dashes the seasonal naive forecast" in found.caption


def test_a_fan_of_counted_steps_has_their_integers():
    (found,) = fans({"target": "load", "fans": [{**FAN, "times": [str(step) for step in range(2176, 2181)]}]})
    assert ">2176</text>" in found.drawn
    assert ">2180</text>" in found.drawn
    assert ">step</text>" in found.drawn
    assert "2179\nforecast: 3" in found.drawn


@pytest.mark.parametrize("extra", [{"times": ["2026"]}, {"times": 7}, {"seasonal": [1.0]}, {"last": [None, 1.0]}])
def test_wrong_dates_and_simple_forecasts_are_left_out(extra):
    (plain,), (found,) = fans({"fans": [FAN]}), fans({"fans": [{**FAN, **extra}]})
    assert found == plain


def test_names_are_escaped():
    (found,) = fans({"target": "<script>", "fans": [{**FAN, "name": "<b>"}]})
    assert "<b>" not in found.drawn
    assert "<script>" not in found.drawn


@pytest.mark.parametrize(
    "change",
    [
        {"history": "abc"},
        {"actual": [1.0]},
        {"actual": [float("nan"), 1.0]},
        {"quantiles": [[1.0, 2.0]] * 2},
        {"quantiles": [[1.0, 2.0, None, 4.0, 5.0]] * 2},
        {"quantiles": []},
        {"history": [1.0] * 1000},
        {"quantiles": [[1e308] * 5] * 2},
        {"history": [10**400]},
    ],
)
def test_malformed_fan_is_left_out(change):
    assert fans({"target": "load", "fans": [{**FAN, **change}, 7]}) == []
    assert fans({"fans": "all"}) == []
    assert fans({}) == []


def test_one_step_after_one_value_can_be_drawn():
    assert fans({"fans": [{"history": [2.0], "actual": [2.0], "quantiles": [[2.0] * 5]}]})
    assert fans({"fans": [{"history": [], "actual": [None], "quantiles": ROWS[:1]}]})
