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


def test_interval_matches_all_resamples():
    values = np.array([0.3, -0.1, 0.4, 0.2, 0.7])
    drawn = np.array(list(itertools.product(values, repeat=5)))  # all 3125 of them
    apart = drawn[drawn.std(axis=1) > 1e-9]  # but the five of one value alone, of which none is in the middle
    far = (apart.mean(axis=1) - values.mean()) / apart.std(axis=1, ddof=1)
    least, most = np.quantile(far, [0.025, 0.975])
    low, high = values.mean() - most * values.std(ddof=1), values.mean() - least * values.std(ddof=1)
    assert statistics.interval(list(values)) == pytest.approx((low, high), abs=0.06)
    assert low < 0 < high  # where the percentile interval, 0.06 to 0.52, would claim a difference


def test_interval_of_many_values_matches_students_t():
    values = np.random.default_rng(1).normal(0.5, 1, 200)
    theirs = scipy.stats.ttest_1samp(values, 0).confidence_interval()
    assert statistics.interval(list(values)) == pytest.approx((theirs.low, theirs.high), abs=0.02)


def test_interval_of_five_seeds_has_its_nominal_coverage():
    samples = np.random.default_rng(2).normal(size=(400, 5))
    missed = sum(not low <= 0 <= high for low, high in map(statistics.interval, samples))
    assert 0.02 < missed / 400 < 0.09


def test_equal_values_give_an_empty_interval():
    assert statistics.interval([0.5] * 5) == (0.5, 0.5)


def test_the_same_values_give_the_same_interval():
    assert statistics.interval([1.0, 2.0, 4.0, 5.0]) == statistics.interval([1.0, 2.0, 4.0, 5.0])


def test_an_interval_of_three_values_is_refused():
    with pytest.raises(ValueError, match="at least 4 values, got 3"):
        statistics.interval([1.0, 2.0, 3.0])


def test_pairs_are_the_seeds_that_both_have():
    assert statistics.paired({0: 3.0, 1: 5.0, 7: 1.0}, {1: 4.0, 0: 1.0, 2: 9.0}) == [2.0, 1.0]


def seeds(*values):
    return dict(enumerate(values))


@pytest.mark.parametrize(("higher", "best"), [(False, "LSTM"), (True, "RRU")])
def test_single_seed_winner_is_labelled(higher, best):
    verdict = statistics.verdict({"RRU": seeds(8.0), "LSTM": seeds(7.9)}, higher)
    assert (verdict.best, verdict.shown) == (best, True)
    assert "one seed each, not significant" in verdict.reason


def test_equal_results_have_no_winner():
    assert not statistics.verdict({"RRU": seeds(8.0), "LSTM": seeds(8.0)}, False).shown


def test_consistent_lead_is_significant():
    rru, lstm = seeds(7.71, 7.83, 7.69, 7.92, 7.78), seeds(8.12, 8.21, 8.21, 8.27, 8.25)
    verdict = statistics.verdict({"LSTM": lstm, "RRU": rru}, False)
    assert (verdict.best, verdict.shown) == ("RRU", True)
    assert "significant: beats LSTM, the runner-up, by 0.3" in verdict.reason


def test_inconsistent_lead_is_not_significant():
    rru, lstm = seeds(7.7, 8.4, 7.7, 8.5, 7.8), seeds(8.1, 8.0, 8.2, 8.1, 8.3)
    verdict = statistics.verdict({"LSTM": lstm, "RRU": rru}, False)
    assert (verdict.best, verdict.shown) == ("RRU", False)
    assert "not significant: differs from LSTM by" in verdict.reason


def test_the_winner_must_lead_every_other():
    rru, lstm = seeds(7.71, 7.83, 7.69, 7.92, 7.78), seeds(8.12, 8.21, 8.21, 8.27, 8.25)
    near = {seed: value + (0.05 if seed % 2 else -0.04) for seed, value in rru.items()}
    assert not statistics.verdict({"RRU": rru, "GRU": near, "LSTM": lstm}, False).shown


def test_pairing_removes_the_variance_of_seeds():
    rru = seeds(7.0, 8.0, 9.0, 10.0, 11.0)
    assert statistics.verdict({"RRU": rru, "LSTM": {seed: value + 0.1 for seed, value in rru.items()}}, False).shown


@pytest.mark.parametrize("sign", [1, -1])
def test_a_lead_by_other_seeds_alone_is_not_shown(sign):
    rru, lstm = seeds(5.10, 5.12, 5.11, 5.10, 4.0, 4.0, 4.0), seeds(5.0, 5.0, 5.01, 5.0)
    scores = {
        name: {seed: sign * value for seed, value in values.items()} for name, values in (("A", rru), ("B", lstm))
    }
    verdict = statistics.verdict(scores, sign < 0)
    assert (verdict.best, verdict.shown) == ("A", False)
    assert "best mean, but worse on the seeds in common: differs from B by" in verdict.reason


def test_three_seeds_are_never_significant():
    verdict = statistics.verdict({"RRU": seeds(1.0, 1.1, 1.2), "LSTM": seeds(5.0, 5.1, 5.2)}, False)
    assert not verdict.shown
    assert "3 seeds in common with LSTM, 4 are needed" in verdict.reason


def test_single_line_has_no_verdict():
    assert statistics.verdict({"RRU": seeds(1.0, 1.1), "LSTM": {}}, False).best == ""
