import numpy as np
import pytest

pytest.importorskip("sktime", reason="sktime is not installed")
import pandas as pd
from sktime.base import load
from sktime.utils.estimator_checks import check_estimator

from rru.integrations.sktime import RRUForecaster, RRUSeriesClassifier

pytestmark = pytest.mark.filterwarnings("ignore")  # sktime's own
QUICK = RRUForecaster.get_test_params()[0]
SHORT = {
    RRUForecaster: ["test_constructor", "test_predict_quantiles", "test_pretrain_fit_predict_workflow"],
    RRUSeriesClassifier: ["test_constructor", "test_classifier_output"],
}


@pytest.mark.parametrize("estimator", SHORT)
def test_some_checks_of_sktime(estimator):
    assert check_estimator(estimator, raise_exceptions=True, verbose=False, tests_to_run=SHORT[estimator])


@pytest.mark.slow
@pytest.mark.parametrize("estimator", SHORT)
def test_checks_of_sktime(estimator):
    assert len(check_estimator(estimator, raise_exceptions=True, verbose=False)) > 50


def season(months=60, level=100.0, start="2020-01"):
    index = pd.period_range(start, periods=months, freq="M")
    values = level * (1 + 0.3 * np.sin(2 * np.pi * np.arange(months) / 12))
    return pd.Series(values, index, name="sales")


def test_a_panel_is_learnt_by_one_model():
    panel = pd.concat({"north": season(), "south": season(level=7.0)}, names=["shop", "month"]).to_frame("sales")
    forecaster = RRUForecaster(**QUICK).fit(panel, fh=[1, 6])
    forecast = forecaster.predict()
    assert len(forecaster.model_.facts.series) == 2
    assert forecast.index.get_level_values("shop").tolist() == ["north"] * 2 + ["south"] * 2
    np.testing.assert_allclose(forecast.loc["north"] / forecast.loc["south"], 100 / 7, rtol=0.05)
    intervals = forecaster.predict_interval(coverage=[0.5, 0.9])["sales"]
    assert (intervals[0.9, "lower"] < intervals[0.5, "lower"]).all()


def test_a_pretrained_model_forecasts_a_new_series_without_training():
    panel = pd.concat({0: season(), 1: season(level=7.0)}, names=["shop", "month"]).to_frame("sales")
    forecaster = RRUForecaster(**QUICK)
    forecaster.pretrain(panel, fh=[1, 2, 3])
    forecaster.fit(season(level=3000.0), fh=[1, 2, 3])
    assert not hasattr(forecaster, "model_")
    np.testing.assert_allclose(forecaster.predict(), season(63, 3000.0)[-3:], rtol=0.1)


def test_the_season_comes_from_the_index_or_from_the_user():
    assert RRUForecaster(**QUICK).fit(season(), fh=[1]).model_.facts.season == 12
    assert RRUForecaster(**QUICK, sp=6).fit(season(), fh=[1]).model_.facts.season == 6


def test_new_values_are_gone_on_from():
    forecaster = RRUForecaster(**QUICK).fit(season(48), fh=[1, 2])
    model = forecaster.model_
    forecaster.update(season(60)[48:54], update_params=False)
    assert forecaster.model_ is model
    assert forecaster.predict().index[0] == pd.Period("2024-07", "M")


def test_future_inputs_must_be_given():
    inputs = pd.DataFrame({"price": np.arange(63.0)}, index=season(63).index)
    forecaster = RRUForecaster(**QUICK).fit(season(), X=inputs[:60], fh=[1, 2, 3])
    assert forecaster.predict(X=inputs[60:]).shape == (3,)
    with pytest.raises(ValueError, match="X must be given for the steps to forecast"):
        forecaster.predict()


@pytest.mark.parametrize("freq", ["D", "h", "2h", "B", "W-WED", "MS", "ME", "BMS", "2MS", "QS-FEB", "QE-NOV", "YS"])
def test_steps_of_every_length_are_counted(freq):
    times = pd.date_range("2020-01-01", periods=62, freq=freq)
    values = pd.Series(100 + 30 * np.sin(2 * np.pi * np.arange(62) / 4), times, name="sales")
    forecaster = RRUForecaster(**QUICK, sp=4).fit(values[:60], fh=[1, 2])
    pd.testing.assert_series_equal(forecaster.predict(), values[60:], rtol=0.05, check_freq=False)
    panel = pd.concat({"a": values[:60], "b": values[:58]}, names=["shop", "time"]).to_frame()
    forecast = RRUForecaster(**QUICK, sp=4).fit(panel, fh=[1, 2]).predict()
    np.testing.assert_allclose(forecast.loc["b"]["sales"], values[60:], rtol=0.05)


def test_steps_that_cannot_be_counted_are_named():
    values = pd.Series(np.arange(60.0), pd.date_range("2020-01-01", periods=60, freq="SME"), name="sales")
    with pytest.raises(ValueError, match="steps of SME-15 cannot be counted: use a PeriodIndex, or integers"):
        RRUForecaster(**QUICK).fit(values, fh=[1])


def test_inputs_are_those_of_pretraining():
    panel = pd.concat({0: season(), 1: season(level=7.0)}, names=["shop", "month"]).to_frame("sales")
    inputs = pd.DataFrame({"price": np.arange(60.0)}, index=season().index)
    forecaster = RRUForecaster(**QUICK)
    forecaster.pretrain(panel, fh=[1, 2])
    with pytest.raises(ValueError, match="X must have as many columns as in pretrain: 0, got 1"):
        forecaster.fit(season(), X=inputs, fh=[1, 2])


def test_forecasters_are_saved_and_loaded(tmp_path):
    forecaster = RRUForecaster(**QUICK).fit(season(), fh=[1, 2])
    forecaster.save(tmp_path / "model")
    pd.testing.assert_series_equal(load(str(tmp_path / "model")).predict(), forecaster.predict())
