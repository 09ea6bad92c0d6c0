"""Means, spreads and intervals over seeds, beside known values; and who may be called the winner."""

import itertools

import numpy as np
import pytest
import scipy.stats

from rru.report import statistics


def test_mean_and_sample_deviation():
    assert statistics.mean([2, 4, 4, 4, 5, 5, 7, 9]) == 5
    assert statistics.deviation([2, 4, 4, 4, 5, 5, 7, 9]) == pytest.approx((32 / 7) ** 0.5)


def test_one_seed_has_no_deviation():
    assert statistics.deviation([3.0]) is None


def test_the_interval_is_that_of_all_resamples():
    values = [0.3, -0.1, 0.4, 0.2, 0.7]
    means = [np.mean(drawn) for drawn in itertools.product(values, repeat=5)]  # all 3125 of them
    low, high = np.quantile(means, [0.025, 0.975])
    assert statistics.interval(values) == pytest.approx((low, high), abs=0.021)  # one step between two means


def test_the_interval_is_that_of_scipy():
    values = np.random.default_rng(1).normal(0.5, 1, 40)
    theirs = scipy.stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=2)
    assert statistics.interval(list(values)) == pytest.approx(tuple(theirs.confidence_interval), abs=0.02)


def test_equal_values_give_an_interval_of_no_width():
    assert statistics.interval([0.5] * 5) == (0.5, 0.5)


def test_the_same_values_give_the_same_interval():
    assert statistics.interval([1.0, 2.0, 4.0]) == statistics.interval([1.0, 2.0, 4.0])


def test_an_interval_of_one_value_is_refused():
    with pytest.raises(ValueError, match="at least 2 values, got 1"):
        statistics.interval([1.0])


def test_pairs_are_the_seeds_that_both_have():
    assert statistics.paired({0: 3.0, 1: 5.0, 7: 1.0}, {1: 4.0, 0: 1.0, 2: 9.0}) == [2.0, 1.0]


def seeds(*values):
    return dict(enumerate(values))


@pytest.mark.parametrize(("higher", "best"), [(False, "LSTM"), (True, "RRU")])
def test_one_seed_each_has_a_winner_said_to_be_one_seed(higher, best):
    verdict = statistics.verdict({"RRU": seeds(8.0), "LSTM": seeds(7.9)}, higher)
    assert (verdict.best, verdict.shown) == (best, True)
    assert "one seed each, not significant" in verdict.reason


def test_equal_results_have_no_winner():
    assert not statistics.verdict({"RRU": seeds(8.0), "LSTM": seeds(8.0)}, False).shown


def test_a_lead_on_every_seed_is_supported():
    rru, lstm = seeds(7.7, 7.8, 7.7, 7.9, 7.8), seeds(8.1, 8.0, 8.2, 8.1, 8.3)
    verdict = statistics.verdict({"LSTM": lstm, "RRU": rru}, False)
    assert (verdict.best, verdict.shown) == ("RRU", True)
    assert "supported" in verdict.reason


def test_a_lead_that_may_be_luck_is_not_shown():
    rru, lstm = seeds(7.7, 8.4, 7.7, 8.5, 7.8), seeds(8.1, 8.0, 8.2, 8.1, 8.3)
    verdict = statistics.verdict({"LSTM": lstm, "RRU": rru}, False)
    assert (verdict.best, verdict.shown) == ("RRU", False)
    assert "not supported: mean difference from LSTM" in verdict.reason


def test_the_winner_must_lead_every_other():
    rru, lstm = seeds(7.7, 7.8, 7.7, 7.9, 7.8), seeds(8.1, 8.0, 8.2, 8.1, 8.3)
    near = {seed: value + (0.05 if seed % 2 else -0.04) for seed, value in rru.items()}
    assert not statistics.verdict({"RRU": rru, "GRU": near, "LSTM": lstm}, False).shown


def test_pairing_sees_what_differs_less_than_seeds_do():
    rru = seeds(7.0, 8.0, 9.0, 10.0, 11.0)
    assert statistics.verdict({"RRU": rru, "LSTM": {seed: value + 0.1 for seed, value in rru.items()}}, False).shown


def test_three_seeds_support_nothing():
    verdict = statistics.verdict({"RRU": seeds(1.0, 1.1, 1.2), "LSTM": seeds(5.0, 5.1, 5.2)}, False)
    assert not verdict.shown
    assert "3 seeds in common with LSTM, 5 are needed" in verdict.reason


def test_one_line_alone_is_no_comparison():
    assert statistics.verdict({"RRU": seeds(1.0, 1.1), "LSTM": {}}, False).best == ""
