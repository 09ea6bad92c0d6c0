import numpy as np
import pytest

from rru.integrations.series import SeriesData, at_levels, fit_series, quantiles_of
from rru.tasks import QUANTILES

QUICK = {"epochs": 2, "refit": False, "limit": 32, "budget": 4000}
NO_INPUTS = (np.zeros(0, np.int64), np.zeros((0, 0)))


def season(steps, inputs=NO_INPUTS):
    return SeriesData(np.arange(steps), 20 + 5.0 * (np.arange(steps) % 4), *inputs)


def fitted(panel, horizon, **options):
    given = {"cell": "rru", "frequency": None, "season": 4, "settings": QUICK, "seed": 0, **options}
    return fit_series(panel, horizon, **given)


@pytest.fixture(scope="module")
def trained():
    return fitted({"a": season(60), "b": season(50)}, 4)


def test_a_season_is_repeated(trained):
    found = quantiles_of(trained, {"a": season(60), "b": season(50)}, {"a": 4, "b": 4})
    np.testing.assert_allclose(found["a"][:, 2], [20, 25, 30, 35], rtol=0.05)
    np.testing.assert_allclose(found["b"][:, 2], [30, 35, 20, 25], rtol=0.05)


def test_forecasts_go_on_beyond_the_horizon(trained):
    found = quantiles_of(trained, {"a": season(60)}, {"a": 10})["a"]
    assert found.shape == (10, 5)
    np.testing.assert_allclose(found[:, 2], 20 + 5.0 * (np.arange(10) % 4), rtol=0.1)
    assert (np.diff(found, axis=1) >= 0).all()


def test_short_series_are_forecast_in_smaller_parts():
    panel = {"": season(10)}
    short = fitted(panel, 5)
    assert short.facts.horizon == 2
    assert quantiles_of(short, panel, {"": 5})[""].shape == (5, 5)


def test_inputs_that_are_known_in_advance_count():
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(84, 1))
    data = SeriesData(np.arange(80), 50 + 10 * inputs[:80, 0], np.arange(84), inputs)
    model = fitted({"": data}, 4, season=1)
    forecast = quantiles_of(model, {"": data}, {"": 4})[""][:, 2]
    np.testing.assert_allclose(forecast, 50 + 10 * inputs[80:, 0], atol=3)


def test_levels_of_the_model_are_its_own_and_others_lie_between(trained):
    found = quantiles_of(trained, {"a": season(60)}, {"a": 4})["a"]
    np.testing.assert_allclose(at_levels(found, QUANTILES), found)
    levels = [0.001, 0.025, 0.2, 0.5, 0.7, 0.9, 0.999]
    assert (np.diff(at_levels(found, levels), axis=1) > 0).all()
