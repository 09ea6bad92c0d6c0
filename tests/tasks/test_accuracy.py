"""Measures of forecasts, by hand."""

import numpy as np
import pytest

from rru.tasks.accuracy import Means, errors, measures


def test_measures_of_one_value_by_hand():
    quantiles = np.array([[2.0, 4.0, 6.0, 8.0, 20.0]])
    found = {name: float(values[0]) for name, values in measures(np.array([10.0]), quantiles, np.array([2.0])).items()}
    assert found["mase"] == pytest.approx(2.0)
    assert found["smape"] == pytest.approx(200 * 4 / 16)
    assert (found["mae"], found["rmse"]) == (4.0, 16.0)  # the root is taken of the mean
    assert found["pinball"] == pytest.approx((0.025 * 8 + 0.1 * 6 + 0.5 * 4 + 0.9 * 2 + 0.025 * 10) / 5)
    assert (found["coverage_80"], found["coverage_95"]) == (0.0, 100.0)


def test_unknown_values_do_not_count_and_two_zeros_are_no_error():
    found = errors(np.array([0.0, np.nan, 3.0]), np.array([0.0, 5.0, 1.0]), np.array(1.0))
    means = Means()
    means.add(found)
    scores = {name: float(values[0]) for name, values in means.means().items()}
    assert scores == pytest.approx({"mase": 1.0, "smape": 50.0, "mae": 1.0, "rmse": 2**0.5})


def test_means_by_group_over_several_additions():
    means = Means(3)
    means.add({"mae": np.array([[1.0, 5.0], [3.0, np.nan]])}, np.array([0, 1]))
    means.add({"mae": np.array([[2.0, 7.0]])}, np.array([0, 1]))
    assert means.means()["mae"].tolist()[:2] == [2.0, 6.0]
    assert np.isnan(means.means()["mae"][2])
    assert means.counts.tolist() == [3, 2, 0]
