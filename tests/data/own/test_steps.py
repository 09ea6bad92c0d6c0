"""Series whose steps are counted by integers, or only by the order of the rows."""

import json

import numpy as np
import pytest

from rru.data import DataError, from_csv
from rru.data.own import resampling
from rru.data.own.columns import Layout, find_layout
from rru.data.own.resampling import read_series
from rru.data.own.table import read_table

WAVE = [round(5 + np.sin(number), 3) for number in range(160)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))


def table(tmp_path, rows, head="step,load", name="weekly.csv"):
    path = tmp_path / name
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def load(tmp_path, rows, head="step,load", **options):
    return from_csv(table(tmp_path, rows, head), **{"target": "load", "horizon": 5, **options})


def counted(start=1, step=1, skip=()):
    return [(start + step * number, value) for number, value in enumerate(WAVE) if number not in skip]


def test_integers_count_steps_and_gaps_are_missing_steps(tmp_path):
    own = load(tmp_path, counted(skip=(20, 21, 50)), time="step")
    series = own.load()
    assert len(series.values) == 160
    assert np.flatnonzero(~series.observed).tolist() == [20, 21, 50]
    assert own.notes[:-1] == ["3 steps are not in the file; they are filled and not scored"]
    assert "160 steps, 3 of them missing, steps counted by 'step'" in own.summary
    assert own.facts.starts == ("1",)


def test_steps_may_grow_by_more_than_one(tmp_path):
    own = load(tmp_path, counted(start=-30, step=10, skip=(7,)), time="step")
    assert own.facts.layout.step == 10
    assert own.load().observed.sum() == len(own.load().values) - 1 == 159
    assert "steps of 10 counted by 'step'" in own.summary


def test_the_step_divides_the_differences_in_every_series(tmp_path):
    rows = [("a", 2 * step, value) for step, value in enumerate(WAVE)]
    rows += [("b", step, value) for step, value in enumerate(WAVE[:50])]
    own = load(tmp_path, rows, "place,step,load", id="place", time="step")
    assert own.facts.layout.step == 1
    assert own.load().lengths.tolist() == [319, 50]
    assert own.notes[:-1] == ["159 steps of 1 series are not in the file; they are filled and not scored"]


@pytest.mark.parametrize(("frequency", "season"), [("W", 52), ("h", 24)])
def test_a_frequency_says_what_a_counted_step_is(tmp_path, frequency, season):
    own = load(tmp_path, counted(), time="step", frequency=frequency)
    assert f"season {season} by the frequency" in own.summary
    assert ("every week" if frequency == "W" else "every hour") + ", steps counted by 'step'" in own.summary
    assert len(own.load().values) == 160


def test_a_frequency_without_times_gives_the_season(tmp_path):
    own = load(tmp_path, [(value,) for value in WAVE], "load", frequency="W")
    assert "every week, in the order of the file, season 52 by the frequency" in own.summary
    assert own.facts.starts == ()
    with pytest.raises(ValueError, match="frequency must be such as h"):
        load(tmp_path, [(value,) for value in WAVE], "load", frequency="weekly").load()


def test_the_calendar_needs_dates(tmp_path):
    with pytest.raises(DataError, match="column 'step' counts steps and has no dates, which the calendar needs"):
        load(tmp_path, counted(), time="step", frequency="D", calendar=True).load()
    with pytest.raises(DataError, match="has no column of times, which the calendar needs"):
        load(tmp_path, [(value,) for value in WAVE], "load", frequency="D", calendar=True).load()


@pytest.mark.parametrize(
    ("head", "start", "options", "said"),
    [
        ("when,load", 1800, {}, "every year"),
        ("when,load", 1800, {"frequency": "Y"}, "every year"),
        ("when,load", 1800, {"frequency": "W"}, "every week, steps counted by 'when'"),
        ("when,load", 2900, {}, "steps counted by 'when'"),
        ("when,load", 900, {}, "steps counted by 'when'"),
        ("step,load", 1800, {}, "steps counted by 'step'"),
        ("when,load", 1_700_000_000, {}, "every second"),
        ("when,load", 1, {}, "steps counted by 'when'"),
    ],
)
def test_which_integers_are_years_and_which_count_steps(tmp_path, head, start, options, said):
    assert (
        f"160 steps, {said} from " in load(tmp_path, counted(start), head, time=head.split(",")[0], **options).summary
    )


def test_a_wrong_date_among_dates_does_not_make_them_steps(tmp_path):
    days = [str(day).replace("-", "") for day in np.datetime64("2026-01-01") + np.arange(160)]
    days[31] = "20260132"
    with pytest.raises(DataError, match="line 33: column 'day' must have dates such as 20260131, got 20260132"):
        load(tmp_path, zip(days, WAVE, strict=True), "day,load", time="day").load()


@pytest.mark.parametrize("name", ["step", "t", "Index", "period"])
def test_a_column_that_clearly_counts_steps_is_used(tmp_path, name):
    own = load(tmp_path, counted(skip=(3,)), f"{name},load")
    assert f"steps counted by '{name}'" in own.summary
    rows = [(place, *row) for place in "ab" for row in counted()]
    assert f"steps counted by '{name}'" in load(tmp_path, rows, f"place,{name},load", id="place").summary


@pytest.mark.parametrize(
    ("rows", "head", "options"),
    [
        (counted(), "price,load", {}),  # not named so
        (counted()[::-1], "step,load", {}),
        ([(number // 2, value) for number, value in enumerate(WAVE)], "step,load", {}),
        ([(number / 2, value) for number, value in enumerate(WAVE)], "t,load", {}),
        ([(number, value, "ab"[number % 3 == 0]) for number, value in enumerate(WAVE)], "index,load,id", {"id": "id"}),
        (counted(), "step,load", {"columns": "step"}),
        ([(number**2, value) for number, value in enumerate(WAVE)], "step,load", {}),
        ([(1, "inf", WAVE[0]), *((number, 1, v) for number, v in enumerate(WAVE))], "x,t,load", {}),
    ],
)
def test_a_column_that_may_be_something_else_is_not(tmp_path, rows, head, options):
    assert "steps without times" in load(tmp_path, rows, head, **options).summary


def test_dates_come_before_steps(tmp_path):
    days = np.datetime64("2026-01-01") + np.arange(160)
    rows = [(*row, day) for row, day in zip(counted(), days, strict=True)]
    assert "every day" in load(tmp_path, rows, "step,load,day").summary


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([*counted(), (160, 3)], "line 162: column 'step' has 160 twice; keep one of them"),
        ([*counted(), ("", 3)], "column 'step' must have times, .*; some are missing"),
        ([*counted(), (2.5, 3)], "column 'step' must have times"),
        ([*counted(), (10**16, 3)], "column 'step' must have times"),
        ([*counted(), (10**9, 3)], r"column 'step' has only 161 of the 1,000,000,000 steps from 1 to 1000000000"),
        ([*counted()[:80], (10**9, 3), *counted()[80:]], "column 'step' has only 161 of the 1,000,000,000 steps"),
        ([(7, value) for value in WAVE], "column 'step' must have at least two different steps in a series"),
    ],
)
def test_what_does_not_count_steps_is_refused(tmp_path, rows, said):
    with pytest.raises(DataError, match=said):
        load(tmp_path, rows, time="step").load()


@pytest.mark.parametrize("dated", [True, False])
def test_rows_are_sorted_by_time(tmp_path, dated):
    whens = (np.datetime64("2026-01-01") + np.arange(160)) if dated else np.arange(5, 165)
    series = {"a": WAVE, "b": [10 * value for value in WAVE]}
    rows = [(name, *row) for name, values in series.items() for row in zip(whens, values, strict=True)]
    options = {"id": "place", "time": "when"}
    ordered = load(tmp_path, rows, "place,when,load", **options)
    assert ordered.notes[:-1] == []
    shuffled = [rows[number] for number in np.random.default_rng(0).permutation(len(rows))]
    own = load(tmp_path, shuffled, "place,when,load", **options)
    assert own.notes[:-1] == ["rows were not in order of time; sorted"]
    assert own.load().values.tolist() == series["a"] + series["b"]
    assert own.facts.starts == ordered.facts.starts


def test_rows_without_times_keep_the_order_of_the_file(tmp_path):
    assert load(tmp_path, [(value,) for value in WAVE[::-1]], "load").load().values.tolist() == WAVE[::-1]


def test_a_file_to_test_on_begins_at_the_next_step(tmp_path):
    train = table(tmp_path, counted()[:100], name="train.csv")
    own = from_csv(train, target="load", horizon=5, time="step", test=table(tmp_path, counted()[102:], name="test.csv"))
    assert own.load().observed.tolist() == [True] * 100 + [False] * 2 + [True] * 58
    again = from_csv(train, target="load", horizon=5, time="step", test=table(tmp_path, counted()[90:], name="t2.csv"))
    with pytest.raises(DataError, match=r"must begin after 100, the end of the data before it; begins at 91"):
        again.load()


def test_new_data_is_read_as_the_layout_says(tmp_path):
    """Steps from 1500 to 1600 alone would be years."""
    layout = find_layout(read_table(table(tmp_path, counted())), {"target": "load", "time": "step"})
    new = read_table(table(tmp_path, counted(1500), "step,load", "new.csv"))
    (series,) = read_series(new, layout).values()
    assert series.times(160, 162).tolist() == [1660, 1661]
    dated = read_table(table(tmp_path, zip(np.datetime64("2026-01-01") + np.arange(160), WAVE, strict=True)))
    with pytest.raises(DataError, match="column 'step' must have integers, of which 1 is one step; got times such as"):
        read_series(dated, layout)


def test_many_series_are_read(tmp_path, monkeypatch):
    rows = [(f"S{name}", step, name + step) for name in range(6000) for step in (1, 2, 4)]
    some = read_table(table(tmp_path, rows, "id,step,load"))
    layout = find_layout(some, {"target": "load", "id": "id", "time": "step"})
    series = read_series(some, layout)
    assert list(series) == sorted(f"S{name}" for name in range(6000))
    assert series["S77"].values.tolist() == [78, 79, 79, 81]
    assert {each.notes for each in series.values()} == {
        ("6,000 steps of 6,000 series are not in the file; they are filled and not scored",)
    }
    monkeypatch.setattr(resampling, "MAX_SERIES", 5999)
    with pytest.raises(DataError, match="must have at most 5,999 series, has 6,000 in 'id'"):
        read_series(some, layout)


VERSION_0_2 = {
    "target": "load",
    "time": "step",
    "id": None,
    "past": [],
    "known": [],
    "calendar": [],
    "levels": {},
    "frequency": "Y",
    "means": [],
    "deviations": [],
}


def test_layouts_of_older_versions_are_read(tmp_path):
    """Version 0.2 knew no steps: there a column named step with years had years."""
    layout = Layout.from_fields(VERSION_0_2)
    assert layout.step is None
    (series,) = read_series(read_table(table(tmp_path, counted(1800))), layout).values()
    assert str(series.start) == "1800-01-01T00:00:00.000000"
    assert Layout.from_fields({**VERSION_0_2, "time": None, "frequency": None}) == Layout("load")


@pytest.mark.parametrize("options", [{"time": "step"}, {"time": "step", "frequency": "W"}, {"frequency": "h"}, {}])
def test_a_layout_is_read_back(tmp_path, options):
    own = load(tmp_path, counted(), **options)
    fields = json.loads(json.dumps(own.facts.fields()))
    assert type(own.facts).of(fields) == own.facts
    assert own.facts.layout.step == 1


@pytest.mark.parametrize(
    "change",
    [
        {"step": 0},
        {"step": -1},
        {"step": 1.0},
        {"step": True},
        {"step": "1"},
        {"step": [1]},
        {"step": 10**16},
        {"time": None, "step": 1},
        {"frequency": None},
        {"frequency": "D", "step": 1, "calendar": ["year sin"], "means": [0], "deviations": [1]},
        {"frequency": "D", "time": None, "calendar": ["year sin"], "means": [0], "deviations": [1]},
    ],
)
def test_a_layout_that_cannot_be_is_refused(change):
    with pytest.raises(ValueError, match="of a layout"):
        Layout.from_fields({**VERSION_0_2, **change})
