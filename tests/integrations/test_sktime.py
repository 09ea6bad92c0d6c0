import numpy as np
import pytest

pytest.importorskip("sktime", reason="sktime is not installed")
import pandas as pd
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
