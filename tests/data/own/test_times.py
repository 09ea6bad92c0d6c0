"""Timestamps, their frequency, and calendar features."""

import numpy as np
import pytest

from rru.data.own.times import Frequency, calendar, frequency_of, is_time, parse


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-04",
        "2026-03-04 00:00",
        "2026-03-04T00:00:00Z",
        "2026-03-04 02:00+02:00",
        "2026/03/04",
        "04.03.2026",
        "20260304",
        "4 Mar 2026",
        "Mar-4-2026",
        "03/04/2026 12:00 AM",
    ],
)
def test_common_forms_of_a_time(text):
    times, wrong = parse([text, text])
    assert wrong is None
    assert {np.datetime64("2026-03-04", "us"), np.datetime64("2026-04-03", "us")} >= set(times)


@pytest.mark.parametrize(("text", "month"), [("2026-04", 4), ("2026 Q2", 4), ("2026Q2", 4), ("2026 Apr", 4)])
def test_months_and_quarters(text, month):
    assert parse([text])[0][0] == np.datetime64(f"2026-{month:02d}", "us")


def test_day_and_month_are_told_apart_by_what_is_even():
    times, _ = parse([f"{day:02d}/02/2026" for day in range(1, 10)])
    assert (np.diff(times) == np.timedelta64(1, "D")).all()
    times, _ = parse([f"02/{day:02d}/2026" for day in range(1, 10)])
    assert (np.diff(times) == np.timedelta64(1, "D")).all()


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y"])
@pytest.mark.parametrize("step", ["M", "Q"])
def test_months_are_as_even_as_days(form, step):
    whens = Frequency.of(step).times(np.datetime64("2016-01-01", "us"), np.arange(120))
    times, _ = parse([when.strftime(form) for when in whens.tolist()])
    assert (times == whens).all()


def test_a_known_frequency_tells_day_and_month_apart():
    texts = [f"01/{month:02d}/2026" for month in range(1, 13)]  # twelve days in January, or the months of a year
    assert (parse(texts, Frequency.of("M"))[0] == np.arange("2026-01", "2027-01", dtype="datetime64[M]")).all()
    assert (parse(texts, Frequency.of("D"))[0] == np.arange("2026-01-01", "2026-01-13", dtype="datetime64[D]")).all()


def test_words_and_plain_numbers_are_no_times():
    assert not is_time("tomorrow")
    assert not is_time("20260304")
    assert parse(["2026-01-01", "soon"])[1] == 1


@pytest.mark.parametrize(
    ("step", "code", "said", "seasons"),
    [
        ("15min", "15min", "every 15 minutes", (96, 672)),
        ("h", "h", "every hour", (24, 168)),
        ("D", "D", "every day", (7, 365)),
        ("7D", "W", "every week", (52,)),
        ("M", "M", "every month", (12,)),
        ("Q", "Q", "every quarter", (4,)),
        ("Y", "Y", "every year", ()),
        ("B", "B", "every business day", (5, 261)),
    ],
)
def test_frequency_is_found_despite_gaps(step, code, said, seasons):
    frequency = Frequency.of(step)
    times = frequency.times(np.datetime64("2024-02-29T00:00", "us"), np.arange(60))
    found = frequency_of(np.delete(times, [7, 8, 30]))
    assert found == frequency
    assert (found.code, str(found), found.seasons) == (code, said, seasons)
    assert (found.positions(times, times[0]) == np.arange(60)).all()


def test_month_ends_stay_month_ends():
    times = Frequency.of("M").times(np.datetime64("2026-02-28", "us"), np.arange(3))
    assert times.astype("datetime64[D]").astype(str).tolist() == ["2026-02-28", "2026-03-31", "2026-04-30"]


def test_uneven_times_have_no_frequency():
    assert frequency_of(parse(["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04 05:07"])[0]) is None


@pytest.mark.parametrize("text", ["", "0h", "2B", "hour", "h2", "-3D"])
def test_a_frequency_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="frequency must be such as h"):
        Frequency.of(text)


def test_calendar_features_vary_with_what_the_steps_tell():
    hours = Frequency.of("h")
    times = hours.times(np.datetime64("2026-01-05T06:00", "us"), np.arange(24))  # a Monday
    features = calendar(times, hours)
    assert features["hour sin"][0] == pytest.approx(1)
    assert features["weekday 0"][0] == 1
    assert set(calendar(times, Frequency.of("M"))) == {"year sin", "year cos"}
    assert not calendar(times, Frequency.of("Y"))
