"""Series from tables: what is understood of them, how they are split and scaled, and what is refused."""

from dataclasses import asdict

import numpy as np
import pytest

from rru.data import DataError, from_csv
from rru.data.own.scaling import Scaling, simple_forecasts


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))


def table(tmp_path, lines, name="energy.csv"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


def hourly(count=200, *, skip=(), value=lambda hour: 10 + hour % 24 + 0.01 * hour):
    start = np.datetime64("2026-01-01T00:00")
    return ["time,load"] + [f"{start + hour},{value(hour)}" for hour in _hours(count) if hour.astype(int) not in skip]


def _hours(count):
    return np.arange(count).astype("timedelta64[h]")


def load(tmp_path, lines, **options):
    return from_csv(table(tmp_path, lines), **{"target": "load", "horizon": 5, **options})


def days(values, *more):
    first = np.datetime64("2026-01-01")
    return [",".join(map(str, (first + number, value, *more))) for number, value in enumerate(values)]


WAVE = [round(5 + np.sin(number), 3) for number in range(60)]


def test_what_was_understood_is_said_in_one_line(tmp_path):
    lines = ["time,load"] + [f"2026-01-{1 + hour // 24:02d} {hour % 24:02d}:00,{hour % 24}" for hour in range(240)]
    own = load(tmp_path, lines)
    assert own.summary == (
        "energy.csv: series to forecast; 'load'; 240 steps, every hour from 2026-01-01 00:00 to 2026-01-10 23:00, "
        "season 24 by the frequency; forecasts 5; "
        "train / valid / test 192 / 24 / 24 steps"
    )
    assert own.notes == []


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%m/%d/%Y"])
def test_days_and_months_of_monthly_data_are_not_mixed_up(tmp_path, form):
    months = np.arange("2014-01", "2024-01", dtype="datetime64[M]").astype("datetime64[D]").tolist()
    lines = ["date,load", *(f"{month.strftime(form)},{number % 12}" for number, month in enumerate(months))]
    own = load(tmp_path, lines)
    assert "'load'; 120 steps, every month from 2014-01-01 to 2023-12-01, season 12" in own.summary
    train, test = (table(tmp_path, [lines[0], *some], name) for some, name in ((lines[1:109], "a"), (lines[109:], "b")))
    own = from_csv(train, target="load", horizon=5, test=test)
    assert "120 steps, every month from 2014-01-01 to 2023-12-01" in own.summary


def test_a_grid_that_is_mostly_empty_is_warned_of(tmp_path):
    lines = [f"{np.datetime64('2026-01-01') + day},{day % 7}" for day in range(400) if day % 30 < 3]
    own = load(tmp_path, ["day,load", *lines])
    assert own.notes[0].startswith(f"WARNING: {393 - 42:,} of 393 steps are missing; are they really every day from")


def test_the_future_is_never_trained_on(tmp_path):
    own = load(tmp_path, ["day,load", *days(WAVE)])
    series = own.load()
    assert series.splits.tolist() == [[48, 54]]
    changed = load(tmp_path, ["day,load", *days([*WAVE[:48], *(1000 * value for value in WAVE[48:])])])
    assert changed.facts.series == own.facts.series


def test_gaps_are_filled_from_the_season_before_and_are_said(tmp_path):
    rows = days(WAVE)
    own = load(tmp_path, ["day,load", *rows[:20], *rows[23:]])
    series = own.load()
    assert len(series.values) == 60
    shifted = np.array(WAVE[13:16]) + np.array([6, 5, 4]) / 7 * (WAVE[19] - WAVE[12])
    assert series.values[20:23] == pytest.approx(shifted.clip(min(WAVE[:20]), max(WAVE[:20])))
    assert series.observed.sum() == 57
    assert "3 of them missing" in own.summary
    assert "3 steps are not in the file" in own.notes[0]


def test_missing_values_are_not_observed_and_the_ends_are_cut(tmp_path):
    values = ["NA", "", *WAVE[2:30], "nan", *WAVE[31:], "", ""]
    series = load(tmp_path, ["day,load", *days(values)]).load()
    assert len(series.values) == 58
    assert np.flatnonzero(~series.observed).tolist() == [28]
    assert series.values[28] == min(WAVE[2:30])  # that of the week before, less the change since then, is lower


def test_several_series_in_one_file_are_scaled_each_by_itself(tmp_path):
    rows = [f"{day},{place}" for place, factor in (("b", 1), ("a", 1e6)) for day in days([factor * v for v in WAVE])]
    own = load(tmp_path, ["day,load,place", *rows], id="place")
    assert list(own.facts.series) == ["a", "b"]
    scales = [own.facts.series[name].naive for name in "ab"]
    assert scales[0] == pytest.approx(1e6 * scales[1])
    assert "2 series of 'load' by 'place'" in own.summary


@pytest.mark.parametrize("shops", [("north", "south"), (1, 2), [f"shop {number}" for number in range(1500)]])
@pytest.mark.parametrize("stacked", [True, False])
def test_times_that_come_again_are_several_series(tmp_path, shops, stacked):
    whens = [f"2026-01-{day:02d}" for day in range(1, 6)]
    pairs = [(day, shop) for shop in shops for day in whens]
    rows = [f"{day},{1.5 * number},{shop},{number % 7}" for number, (day, shop) in enumerate(pairs)]
    lines = ["day,price,shop,load", *(rows if stacked else sorted(rows))]
    said = r"column 'day' has 2026-01-0\d twice; are these several series\? Give id='shop'"
    with pytest.raises(DataError, match=said):
        load(tmp_path, lines, columns="price").load()


def test_a_time_that_is_there_twice_does_not_make_an_input_the_id(tmp_path):
    rows = [f"{day},{number % 9}" for number, day in enumerate(days(WAVE))]
    with pytest.raises(DataError, match="line 62: column 'day' has 2026-03-01 twice; keep one of them"):
        load(tmp_path, ["day,load,warmth", *rows, "2026-03-01,3,8"]).load()


def test_inputs_are_numbers_categories_and_the_calendar(tmp_path):
    rows = [f"{day},{number},{'wet' if number % 3 else 'dry'}" for number, day in enumerate(days(WAVE))]
    own = load(tmp_path, ["day,load,price,sky", *rows], columns="sky", known="price", calendar=True)
    series = own.load()
    assert series.inputs.shape == (60, 2 + 1 + 9)
    assert series.inputs[:48].mean(axis=0) == pytest.approx(np.zeros(12), abs=1e-5)
    assert "with sky, price (known in advance), calendar" in own.summary
    both = load(tmp_path, ["day,load,price,sky", *rows], known="price,sky")
    assert "with price, sky (these 2 known in advance); 60 steps" in both.summary
    unused = load(tmp_path, ["day,load,price,sky", *rows])
    assert "columns not used: price, sky" in unused.notes[-1]
    assert load(tmp_path, ["day,load,price,sky", *rows], columns="all").load().inputs.shape == (60, 3)


def test_uneven_times_are_averaged_on_a_given_frequency(tmp_path):
    rows = [f"2026-01-{1 + number // 4:02d} {(number % 4) * 5 + number % 3:02d}:30,{number}" for number in range(120)]
    with pytest.raises(DataError, match="column 'day' has uneven times"):
        load(tmp_path, ["day,load", *rows]).load()
    series = load(tmp_path, ["day,load", *rows], frequency="D").load()
    assert series.values[:3].tolist() == [1.5, 5.5, 9.5]


def test_years_and_dates_as_numbers_are_times(tmp_path):
    assert "every year" in load(tmp_path, ["year,load", *(f"{1900 + n},{v}" for n, v in enumerate(WAVE))]).summary
    rows = [row.replace("-", "") for row in days(WAVE)]
    assert "every day" in load(tmp_path, ["date,load", *rows]).summary
    assert "steps without times" in load(tmp_path, ["load", *map(str, WAVE)]).summary


def test_a_season_is_found_where_the_frequency_does_not_tell(tmp_path):
    values = [np.sin(2 * np.pi * number / 11) for number in range(200)]
    assert "season 11 found by autocorrelation" in load(tmp_path, ["load", *map(str, values)]).summary
    assert "season 7 as given" in load(tmp_path, ["load", *map(str, values)], season=7).summary


def test_files_to_validate_and_test_on_continue_the_series(tmp_path):
    rows = days(WAVE)
    files = {
        name: table(tmp_path, ["day,load", *some], f"{name}.csv")
        for name, some in (("train", rows[:40]), ("valid", rows[40:50]), ("test", rows[50:]))
    }
    own = from_csv(files["train"], target="load", horizon=5, valid=files["valid"], test=files["test"])
    assert own.load().splits.tolist() == [[40, 50]]
    assert (own.load().values == WAVE).all()
    with pytest.raises(DataError, match="must begin after"):
        from_csv(files["valid"], target="load", horizon=2, test=files["train"]).load()
    with pytest.raises(DataError, match="needs test too"):
        from_csv(files["train"], target="load", horizon=5, valid=files["valid"]).load()


def test_a_file_to_test_on_must_not_overlap_what_is_trained_on(tmp_path):
    train = table(tmp_path, ["day,load", *days(WAVE)], "train.csv")
    test = table(tmp_path, ["day,load", *days(WAVE)[50:]], "test.csv")
    with pytest.raises(
        DataError, match=r"must begin after 2026-03-01.*; begins at 2026-02-20.* must not be trained on"
    ):
        from_csv(train, target="load", horizon=5, test=test).load()
    train, test = (table(tmp_path, ["load", *map(str, some)], f"{len(some)}.csv") for some in (WAVE, WAVE[50:]))
    with pytest.raises(DataError, match="has the values that the data before it ends with"):
        from_csv(train, target="load", horizon=5, test=test).load()


def test_steps_between_the_files_are_a_gap(tmp_path):
    rows = days(WAVE)
    train = table(tmp_path, ["day,load", *rows[:40]], "train.csv")
    test = table(tmp_path, ["day,load", *rows[43:]], "test.csv")
    own = from_csv(train, target="load", horizon=5, test=test, calendar=True)
    assert own.load().splits.tolist() == [[35, 40]]
    assert own.load().observed.tolist() == [True] * 40 + [False] * 3 + [True] * 17
    assert (own.load().values[43:] == WAVE[43:]).all()
    whole = from_csv(table(tmp_path, ["day,load", *rows], "whole.csv"), target="load", horizon=5, calendar=True)
    weekday = whole.load().inputs  # standardized by another training part, so compared by what is equal in it
    ours = own.load().inputs
    for column in range(ours.shape[1]):
        assert np.corrcoef(ours[:, column], weekday[:, column])[0, 1] > 0.9999
    assert "3 steps between the files are in neither; they are not scored" in own.notes


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        (["day,load", *days(WAVE)], {"target": "laod"}, "did you mean 'load'"),
        (["day,load", *days(WAVE)], {"time": "dai"}, "did you mean 'day'"),
        (["day,load", *days(["NA"] * 60)], {}, "column 'load' has no values, only missing ones"),
        (["day,load", *days([7] * 60)], {}, "column 'load' does not change in its training part"),
        (["day,load", *days(WAVE[:2])], {}, "has 2 steps, too few"),
        (["day,load", *days(WAVE)], {"horizon": 60}, "horizon must be at most 18"),
        (["day,load", *days([*WAVE[:9], "inf"])], {}, "line 11: column 'load' must have numbers from -1e+30 to 1e+30"),
        (["day,load", *days(WAVE), *days(WAVE)[-1:]], {}, "line 62: column 'day' has 2026-03-01 twice; keep one"),
        (["day,load", *days(["x"] * 60)], {}, "line 2: column 'load' must have numbers, got 'x'"),
        (["day,load,note", *days(WAVE, "a b")], {"calendar": True, "time": "note"}, "column 'note' must have times"),
        (["load", *map(str, WAVE)], {"calendar": True}, "has no column of times"),
    ],
)
def test_what_cannot_be_forecast_is_refused_in_one_line(tmp_path, lines, options, said):
    with pytest.raises(DataError) as caught:
        load(tmp_path, lines, **options).load()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_series_without_an_id_are_guessed(tmp_path):
    rows = sorted(f"{day},{place}" for place in "ab" for day in days(WAVE))
    with pytest.raises(DataError, match=r"twice; are these several series\? Give id='place'"):
        load(tmp_path, ["day,load,place", *rows]).load()


def test_a_series_that_does_not_change_is_left_out_of_several(tmp_path):
    rows = [f"{day},{place}" for place, values in (("a", WAVE), ("b", [3] * 60)) for day in days(values)]
    own = load(tmp_path, ["day,load,place", *rows], id="place")
    assert list(own.facts.series) == ["a"]
    assert "1 series do not change" in own.notes[0]


def test_wrong_options_are_refused():
    for options in ({"horizon": 0}, {"season": 0}):
        with pytest.raises(ValueError, match="must be at least 1, got 0"):
            from_csv("some.csv", **{"target": "load", "horizon": 1, **options})


def test_simple_forecasts():
    values = np.array([1.0, 2, 3, 11, 12, 13])
    at = np.array([5]), np.array([0])
    assert simple_forecasts("last", values, *at, 4, 3).tolist() == [[13, 13, 13, 13]]
    assert simple_forecasts("seasonal", values, *at, 4, 3).tolist() == [[11, 12, 13, 11]]
    assert simple_forecasts("growth", values, *at, 4, 3).tolist() == [[21, 22, 23, 31]]
    assert simple_forecasts("average", values, *at, 4, 3).tolist() == [[6, 7, 8, 6]]
    assert simple_forecasts("mean", values, *at, 2, 3).tolist() == [[7, 7]]
    assert simple_forecasts("seasonal", values, np.array([1]), np.array([0]), 2, 3).tolist() == [[2, 1]]


def test_a_scaling_is_read_back_and_checked():
    scaling = Scaling.of(np.array(WAVE), 6)
    assert Scaling.from_fields(asdict(scaling)) == scaling
    with pytest.raises(ValueError, match="unit of a scaling must be finite and positive"):
        Scaling.from_fields({**asdict(scaling), "unit": 0})
