"""Windows over series: what a model sees of them, and its outputs in the units of the file."""

import numpy as np
import pytest

from rru.data import from_csv
from rru.tasks import SeriesPart, Windows


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))


def windows(tmp_path, table, *, context=12, change=lambda values: values, **options) -> Windows:
    """Return windows over the series of a table, whose values are changed after it was read."""
    path = tmp_path / "some.csv"
    rows = zip(*table.values(), strict=True)
    path.write_text("\n".join([",".join(table), *(",".join(map(str, row)) for row in rows)]) + "\n")
    own = from_csv(path, **{"target": "load", "horizon": 4, **options})
    series = own.load()
    ends = np.cumsum(series.lengths)[:-1]
    arrays = (np.split(array, ends) for array in (change(series.values), series.observed, series.inputs))
    parts = [SeriesPart(*each) for each in zip(*arrays, series.facts.series.values(), strict=True)]
    return Windows(parts, series.facts, context)


def wave(count=150, period=6):
    return np.round(10 + 3 * np.sin(2 * np.pi * np.arange(count) / period), 4)


AT = np.array([0]), np.array([100])


def test_the_values_to_be_forecast_are_never_shown(tmp_path):
    def later(values):
        return np.concatenate([values[:101], values[101:] + 50])

    seen, changed = (windows(tmp_path, {"load": wave()}, change=change) for change in (lambda values: values, later))
    assert (seen.features(*AT) == changed.features(*AT)).all()
    assert (changed.actual(*AT) == wave()[101:105] + 50).all()
    assert (changed.targets(*AT) > seen.targets(*AT) + 1).all()


def test_inputs_known_in_advance_are_seen_and_others_are_not(tmp_path):
    columns = {"load": wave(), "price": np.arange(150.0), "wind": np.arange(150.0)}
    features = windows(tmp_path, columns, columns="wind", known="price").features(np.array([0]), np.array([50]))
    ahead, before = features[12:, 0, -2:], features[:12, 0, -2:]  # (H, inputs), (T, inputs)
    assert (ahead[:, 0] == 0).all()
    assert (np.diff(ahead[:, 1]) > 0).all()
    assert (before[:, 0] == before[:, 1]).all()


def test_windows_at_the_beginning_repeat_the_first_value_and_say_that_it_is_not_known(tmp_path):
    some = windows(tmp_path, {"load": wave()})
    values, known = some.features(np.array([0]), np.array([2]))[:, 0].T
    assert known.tolist() == [0] * 9 + [1] * 3 + [0] * 4
    assert (values[:10] == values[9]).all()
    assert (values[12:] == 0).all()


def test_windows_do_not_reach_into_the_series_before(tmp_path):
    columns = {"load": np.concatenate([1000 * wave(), wave()]), "place": ["a"] * 150 + ["b"] * 150}
    some = windows(tmp_path, columns, id="place")
    values, known = some.features(np.array([1]), np.array([2]))[:, 0].T
    assert known.sum() == 3
    assert (values[:10] == values[9]).all()


def test_missing_values_are_those_of_the_season_before_and_are_marked(tmp_path):
    values = wave().astype(object)
    values[60:63] = ""
    some = windows(tmp_path, {"load": values})
    shown, known = some.features(np.array([0]), np.array([64]))[:12, 0].T
    assert known.tolist() == [1] * 7 + [0] * 3 + [1] * 2
    assert shown[7:10] == pytest.approx(shown[1:4], abs=1e-5)
    targets = some.targets(np.array([0]), np.array([60]))[:, 0]
    assert np.isnan(targets).tolist() == [True, True, False, False]


@pytest.mark.parametrize("log", [True, False])
def test_outputs_become_forecasts_in_the_units_of_the_file(tmp_path, log):
    values = np.round(np.exp(0.02 * np.arange(150)) * wave(), 4) - (0 if log else 12)
    some = windows(tmp_path, {"load": values}, season=6)
    assert (some.scalings[0].floor is not None) == log
    targets = some.targets(*AT)[..., None].astype(np.float64)
    assert some.forecasts(*AT, targets)[:, 0, 0] == pytest.approx(values[101:105], rel=1e-5)


def test_no_forecast_is_negative_where_no_value_was(tmp_path):
    """Of series with zeros, of positive ones, and of those with negative values, in one table."""
    zeros, negative = np.maximum(wave() - 10, 0), wave() - 10
    columns = {
        "load": np.concatenate([zeros, wave(), negative]),
        "place": [name for name in ("a", "b", "c") for _ in range(150)],
    }
    some = windows(tmp_path, columns, id="place")
    places = np.arange(3), np.array([100] * 3)
    low = some.forecasts(*places, np.full((4, 3, 5), -1e3))
    assert (low[:, 0] == 0).all()
    assert (low[:, 1] >= 0).all()
    assert (low[:, 2] < -100).all()
    assert np.isfinite(some.forecasts(*places, np.full((4, 3, 5), 1e6))).all()


def test_simple_forecasts_are_in_the_units_of_the_file(tmp_path):
    some = windows(tmp_path, {"load": wave()}, season=6)
    assert some.simple("last", *AT).tolist() == [[wave()[100]] * 4]
    assert some.simple("seasonal", *AT)[0].tolist() == wave()[95:99].tolist()
