"""The linear forecast that training starts from: it finds known recurrences and effects, and never knows the future."""

import numpy as np
import pytest

from rru.data.own.scaling import BASES, simple_forecasts
from rru.tasks.forecaster import WindowShape
from rru.tasks.linear_start import LinearStart, StartSeries, _sample, fit_start

SHAPE = WindowShape(context=24, horizon=6, patch=6, season=6)


def one(values, known=None) -> StartSeries:
    values = np.asarray(values, np.float64)
    return StartSeries(values, np.zeros((len(values), 0), np.float32) if known is None else known)


def recurrence(weights, count, noise, seed=0):
    """A series whose value is a weighted sum of those before it, by their lags, and noise."""
    draw, values = np.random.default_rng(seed), [0.0] * max(weights)
    for _ in range(count + 100):
        values.append(sum(weight * values[-lag] for lag, weight in weights.items()) + noise * draw.normal())
    return np.array(values[-count:])


def forecasts(start: LinearStart, values, origins, shape, known=None):
    """Forecast (origins, H), by hand: level, centred values, map; and the effects taken off and added."""
    effect = np.zeros(len(values)) if known is None else known @ start.effects
    plain = values - effect
    contexts = plain[origins[:, None] + np.arange(1 - shape.context, 1)]
    level = contexts @ start.level
    ahead = effect[origins[:, None] + np.arange(1, shape.horizon + 1)]
    return (contexts - level[:, None]) @ start.forecast.T + level[:, None] + ahead


def errors(values, shape, season, start, begin, known=None):
    """Return the mean absolute error of the linear forecast after `begin`, and of every simple one."""
    origins = np.arange(begin, len(values) - shape.horizon)
    truth = values[origins[:, None] + np.arange(1, shape.horizon + 1)]
    simple = [simple_forecasts(base, values, origins, np.zeros_like(origins), shape.horizon, season) for base in BASES]
    mine = np.abs(forecasts(start, values, origins, shape, known) - truth).mean()
    return mine, min(np.abs(each - truth).mean() for each in simple)


@pytest.mark.parametrize(
    "weights", [{1: 1.6, 2: -0.7}, {1: -0.8}, {1: 0.5, 6: 0.45}], ids=["waves", "alternating", "season"]
)
def test_a_linear_recurrence_is_forecast_almost_as_if_it_were_known(weights):
    values = recurrence(weights, 1500, 0.3)
    start = fit_start([one(values[:1000])], SHAPE, [6])
    mine, simple = errors(values, SHAPE, 6, start, 1000)
    known = []
    for origin in range(1000, 1494):
        path = list(values[: origin + 1])
        for _ in range(6):
            path.append(sum(weight * path[-lag] for lag, weight in weights.items()))
        known.append(np.abs(path[-6:] - values[origin + 1 : origin + 7]))
    assert mine < 1.1 * np.mean(known)
    assert mine < simple


def test_a_trend_with_a_season_is_followed():
    steps = np.arange(400)
    values = 0.05 * steps + np.sin(2 * np.pi * steps / 6) + 0.1 * np.random.default_rng(0).normal(size=400)
    start = fit_start([one(values[:300])], SHAPE, [6])
    mine, simple = errors(values, SHAPE, 6, start, 300)
    assert mine < simple
    assert mine == pytest.approx(0.08, abs=0.02)  # the mean absolute error of knowing all but the noise


def test_two_seasons_are_found_together():
    shape = WindowShape(context=84, horizon=7, patch=7, season=7)
    steps = np.arange(900)
    values = np.sin(2 * np.pi * steps / 7) + np.sin(2 * np.pi * steps / 42)
    values += 0.1 * np.random.default_rng(0).normal(size=900)
    mine, simple = errors(values, shape, 7, fit_start([one(values[:700])], shape, [7, 42]), 700)
    assert mine < 0.5 * simple


def test_the_effect_of_an_input_known_in_advance_is_found():
    draw = np.random.default_rng(0)
    promotion = (draw.random((400, 1)) < 0.2).astype(np.float32)
    values = 3 * promotion[:, 0] + 0.2 * draw.normal(size=400)
    shape = WindowShape(context=12, horizon=3, patch=4, season=4, known=1)
    start = fit_start([one(values[:300], promotion[:300])], shape, [4])
    assert start.effects == pytest.approx([3], abs=0.1)
    mine, simple = errors(values, shape, 4, start, 300, promotion.astype(np.float64))
    assert mine < 0.25 < simple


def test_an_input_without_effect_is_left_out():
    draw = np.random.default_rng(0)
    values, noise = recurrence({1: 0.9}, 400, 0.3), draw.normal(size=(400, 3)).astype(np.float32)
    shape = WindowShape(context=12, horizon=3, patch=4, season=4, known=3)
    assert np.abs(fit_start([one(values, noise)], shape, [4]).effects).max() < 0.05


def test_a_series_too_short_to_fit_to_gets_a_simple_forecast():
    for count in (2, 8, 9):
        start = fit_start([one(np.arange(count))], SHAPE, [6])
        np.testing.assert_array_equal(start.forecast, np.eye(24)[[-1] * 6])  # the last value, again and again
        np.testing.assert_array_equal(start.level, np.eye(24)[-1])


def test_a_short_series_among_long_ones_does_not_matter():
    long = recurrence({1: 0.6, 2: 0.3}, 600, 0.3)
    alone, both = (fit_start(some, SHAPE, [6]) for some in ([one(long)], [one(long), one([1.0, 5.0])]))
    np.testing.assert_array_equal(alone.forecast, both.forecast)


def test_the_same_series_give_the_same_forecast():
    series = [one(recurrence({1: 0.6, 6: 0.3}, 300, 0.3, seed)) for seed in range(3)]
    first, again = (fit_start(series, SHAPE, [6]) for _ in range(2))
    np.testing.assert_array_equal(first.forecast, again.forecast)
    np.testing.assert_array_equal(first.level, again.level)


def test_before_its_start_a_series_is_taken_to_have_had_its_first_value():
    shape = WindowShape(context=5, horizon=2, patch=1, season=1)
    sample = _sample([one([7.0, 8.0, 9.0, 10.0, 11.0])], np.zeros(0), shape, 100)
    assert sample.contexts.tolist() == [[7, 7, 7, 7, 8], [7, 7, 7, 8, 9]]
    assert sample.targets.tolist() == [[9, 10], [10, 11]]


def test_noise_is_forecast_by_its_mean():
    noise = np.random.default_rng(0).normal(size=1000)
    start = fit_start([one(noise[:700])], SHAPE, [6])
    mine, _ = errors(noise, SHAPE, 6, start, 700)
    assert mine < 1.1 * np.abs(noise[700:]).mean()


def test_a_constant_added_to_all_series_changes_nothing():
    values = recurrence({1: 0.6, 6: 0.3}, 300, 0.3)
    first, moved = (fit_start([one(values + level)], SHAPE, [6]) for level in (0, 64))
    np.testing.assert_allclose(first.forecast, moved.forecast, atol=1e-8)
