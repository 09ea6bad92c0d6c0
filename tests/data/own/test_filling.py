"""Missing values are filled from what came before them."""

import numpy as np
import pytest

from rru.data.own.filling import filled


def gap(count, first, end):
    observed = np.ones(count, bool)
    observed[first:end] = False
    return observed


def test_a_day_that_is_missing_is_like_the_day_before():
    values = 10 + np.sin(2 * np.pi * np.arange(96) / 24)
    observed = gap(96, 50, 74)
    assert filled(np.where(observed, values, np.nan), observed, 24) == pytest.approx(values)


def test_gaps_of_several_seasons_repeat_the_last_one():
    values = np.tile([1.0, 5.0, 3.0, 2.0], 10)
    observed = gap(40, 9, 30)
    assert filled(np.where(observed, values, np.nan), observed, 4) == pytest.approx(values)


def test_one_missing_step_of_a_series_without_a_pattern_stays_near_the_last_value():
    values = np.cumsum(np.random.default_rng(0).normal(size=300)) + 100
    observed = gap(300, 200, 201)
    after = filled(np.where(observed, values, np.nan), observed, 52)
    assert abs(after[200] - values[199]) < 4 < abs(values[148] - values[199])


def test_the_shift_to_the_present_level_fades_within_a_season():
    values = np.array([0.0, 0, 0, 0, 0, 0, 4, np.nan, np.nan, np.nan, np.nan, 0])
    assert filled(values, ~np.isnan(values), 4)[7:11].tolist() == [3, 2, 1, 4]


def test_fillings_are_never_beyond_the_values_so_far():
    values = np.array([5.0, 90, 50, 40, 5, 6, np.nan, np.nan, np.nan, 7])
    after = filled(values, ~np.isnan(values), 4)
    assert after.min() == 5
    assert after[6] == 5  # 50 - 0.75 * 84 would be negative


def test_what_comes_later_is_never_used():
    draw = np.random.default_rng(1)
    values, observed = draw.normal(size=200), draw.random(200) > 0.3
    observed[0] = True
    values[~observed] = np.nan
    whole = filled(values, observed, 7)
    assert not np.isnan(whole).any()
    for end in range(1, 200):
        assert filled(values[:end], observed[:end], 7).tolist() == whole[:end].tolist()


@pytest.mark.parametrize("season", [1, 12])
def test_without_a_season_and_before_one_has_passed_the_last_value_is_repeated(season):
    values = np.array([1.0, np.nan, 3, np.nan, np.nan, 6])
    assert filled(values, ~np.isnan(values), season).tolist() == [1, 1, 3, 3, 3, 6]
