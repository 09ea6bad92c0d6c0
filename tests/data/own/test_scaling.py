"""How series are scaled, which seasons they have, and what becomes of short ones among others."""

import numpy as np
import pytest

from rru.data import DataError, from_csv
from rru.data.own.resampling import read_series
from rru.data.own.scaling import Scaling, pooled, seasonal_difference
from rru.data.own.seasons import detected_season
from rru.data.own.table import read_table

WAVE = [round(5 + np.sin(number), 3) for number in range(60)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))


def several(tmp_path, horizon=5, **series):
    """Read series by name from one table."""
    path = tmp_path / "several.csv"
    rows = [f"{place},{value}" for place, values in series.items() for value in values]
    path.write_text("\n".join(["place,load", *rows]) + "\n")
    return from_csv(path, target="load", horizon=horizon, id="place")


def timed(tmp_path, unit, count, season=None):
    """Read a series of so many hours or days."""
    times = np.datetime64("2024-01-01T00:00") + np.arange(count).astype(f"timedelta64[{unit}]")
    path = tmp_path / "timed.csv"
    path.write_text("time,load\n" + "".join(f"{time},{np.sin(step):.3f}\n" for step, time in enumerate(times)))
    return from_csv(path, target="load", horizon=5, **({} if season is None else {"season": season})).facts


def test_the_logarithm_is_taken_of_positive_series_and_only_of_those(tmp_path):
    values = np.array(WAVE)
    own = several(tmp_path, zeros=[*(values - values.min())], below=[*(-values)], above=WAVE, outlier=[*WAVE[1:], 1e-5])
    scalings = own.facts.series
    assert {name for name, each in scalings.items() if each.floor is not None} == {"above", "outlier"}
    assert {name: each.least for name, each in scalings.items()} == {
        "zeros": 0, "below": None, "above": 0, "outlier": 0,
    }  # fmt: skip
    assert any("'load' of 2 series is positive" in note for note in own.notes)
    low = Scaling.of(np.array([*WAVE, 1e-5]), 1)
    assert (low.floor, low.least) == (None, 0)


def test_a_change_in_per_cent_is_the_same_in_all_positive_series():
    calm, wild = (Scaling.of(np.exp(size * np.sin(np.arange(60))), 1) for size in (0.1, 1.0))
    other = Scaling.of(np.sin(np.arange(60.0)), 1)
    scaled = pooled([calm, wild, other])
    assert scaled[0].unit == scaled[1].unit == pytest.approx((calm.spread + wild.spread) / 2)
    assert scaled[2] == other


def test_a_new_series_is_scaled_like_those_of_training(tmp_path):
    facts = several(tmp_path, a=WAVE, b=[10 * value for value in WAVE]).facts
    new = facts.scaling("new", 7 * np.array(WAVE))
    assert new.unit == facts.series["a"].unit
    assert facts.scaling("new", np.array([3.0])).naive == 1
    assert facts.scaling("new", -np.array(WAVE)).floor is None


def test_a_series_that_repeats_itself_is_compared_with_its_deviation():
    exact = np.array([0.1, 0.5, 0.9] * 20)
    assert seasonal_difference(exact, 3) == exact.std()
    assert seasonal_difference(exact + 1e-14 * np.arange(60), 3) == pytest.approx(exact.std())
    assert seasonal_difference(np.arange(60.0), 3) == 3
    assert seasonal_difference(np.ones(9), 3) == seasonal_difference(np.ones(1), 3) == 1


@pytest.mark.parametrize(
    ("unit", "count", "seasons"),
    [("h", 100, (24,)), ("h", 2000, (24, 168)), ("D", 100, (7,)), ("D", 1500, (7, 365)), ("h", 70, (24,))],
)
def test_hours_have_days_and_weeks_and_days_have_weeks_and_years(tmp_path, unit, count, seasons):
    facts = timed(tmp_path, unit, count)
    assert (facts.season, *facts.longer_seasons) == seasons
    assert f"{' and '.join(map(str, seasons))} by the frequency" in facts.summary


def test_a_season_that_is_given_is_the_only_one(tmp_path):
    facts = timed(tmp_path, "h", 2000, season=12)
    assert (facts.season, facts.longer_seasons) == (12, ())


def test_a_season_is_detected_in_waves_and_not_in_noise():
    draw = np.random.default_rng(0)
    wave = np.sin(2 * np.pi * np.arange(200) / 11)
    assert detected_season(wave, 100) == detected_season(wave + 0.3 * draw.normal(size=200), 100) == 11
    assert detected_season(draw.normal(size=200), 100) == 1
    assert detected_season(np.arange(200.0), 100) == 1
    assert detected_season(np.arange(2.0), 100) == 1


def test_short_series_are_trained_on_and_the_rest_is_left_out(tmp_path):
    own = several(tmp_path, long=WAVE, short=WAVE[:8], one=[4], empty=["", ""], constant=[3] * 60)
    assert list(own.facts.series) == ["long", "short"]
    assert own.load().splits.tolist() == [[48, 54], [8, 8]]
    assert [note for note in own.notes if "series" in note] == [
        "2 series do not change in their training part and are left out",
        "1 series are too short to be held out: they are trained on, not scored",
        "1 series have no values of 'load' and are left out",
    ]


def test_a_long_constant_series_does_not_hide_that_the_others_are_too_short(tmp_path):
    with pytest.raises(DataError, match="series 'short' has 8 steps, too few to train, validate and test"):
        several(tmp_path, short=WAVE[:8], constant=[3] * 60).load()


@pytest.mark.parametrize("series", [{"a": [1], "b": [2]}, {"a": [""], "b": [2]}])
def test_series_of_one_value_each_are_refused(tmp_path, series):
    with pytest.raises(DataError, match="a series of column 'load' must have at least two values, got 1"):
        several(tmp_path, **series).load()


def test_a_series_of_one_value_can_be_forecast_beside_others(tmp_path):
    own = several(tmp_path, a=WAVE, one=[4])
    found = read_series(read_table(own.path), own.facts.layout)
    assert found["one"].values.tolist() == [4]


def test_what_mase_divides_by_is_of_known_values_alone():
    values = np.arange(60.0) + 100 * (np.arange(60) % 2)
    observed = np.ones(60, bool)
    observed[20:30] = False
    gaps = np.where(observed, values, 0.0)
    assert Scaling.of(gaps, 6, observed).naive == Scaling.of(values, 6).naive == 6
