import numpy as np
import pytest

pytest.importorskip("darts", reason="darts is not installed")
import pandas as pd
from darts import TimeSeries
from darts.models import BlockRNNModel, RNNModel
from darts.utils.likelihood_models.torch import GaussianLikelihood, LogNormalLikelihood, QuantileRegression
from darts.utils.timeseries_generation import datetime_attribute_timeseries

from rru.integrations.darts import RRUBlockModule, RRUModule, located

pytestmark = pytest.mark.filterwarnings("ignore")  # those of darts and Lightning
QUIET = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "logger": False}


def series(months=72, level=100.0):
    values = level * (1 + 0.3 * np.sin(2 * np.pi * np.arange(months) / 12))
    times = pd.date_range("2020-01-01", periods=months, freq="MS")
    return TimeSeries.from_times_and_values(times, values.astype(np.float32))


def block(module=RRUBlockModule, **options):
    return BlockRNNModel(
        24, 6, model=module, hidden_dim=8, n_epochs=1, random_state=0, pl_trainer_kwargs=QUIET, **options
    )


def error(forecast, actual):
    return float(np.abs(forecast.values()[:, 0] / actual.values()[:, 0] - 1).mean())


def test_a_block_model_forecasts_saves_and_loads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = block().fit(series(60))
    forecast = model.predict(12)
    assert error(forecast, series()[60:]) < 0.1
    model.save("model.pt")
    again = BlockRNNModel.load("model.pt", pl_trainer_kwargs=QUIET).predict(12, series=series(60))
    np.testing.assert_allclose(again.values(), forecast.values(), rtol=1e-6)
    past = model.historical_forecasts(series(), start=48, forecast_horizon=6, stride=6, retrain=False)
    assert error(past, series().slice_intersect(past)) < 0.1


@pytest.mark.parametrize("likelihood", [QuantileRegression([0.1, 0.5, 0.9]), GaussianLikelihood()])
def test_likelihoods(likelihood):
    scaled = series(60, level=1.0)
    forecast = block(likelihood=likelihood).fit(scaled).predict(6, num_samples=200)
    assert error(forecast.quantile(0.5), series(66, level=1.0)[60:]) < 0.5
    assert (forecast.quantile(0.1).values() < forecast.quantile(0.9).values()).all()


def test_covariates_and_components():
    both, months = (
        series(60).stack(series(60, level=7.0)),
        datetime_attribute_timeseries(series(), "month", cyclic=True),
    )
    given = {"past_covariates": months.astype(np.float32), "future_covariates": months.astype(np.float32)}
    forecast = block().fit([both, both], **{name: [each] * 2 for name, each in given.items()}).predict(6, both, **given)
    assert forecast.values().shape == (6, 2)
    np.testing.assert_allclose(forecast.values()[:, 0] / forecast.values()[:, 1], 100 / 7, rtol=0.1)


def test_a_step_model_forecasts_saves_and_loads(tmp_path):
    scaled, months = series(60, level=1.0), datetime_attribute_timeseries(series(), "month", cyclic=True)
    months = months.astype(np.float32)
    options = {"hidden_dim": 8, "training_length": 30, "n_epochs": 1, "random_state": 0, "pl_trainer_kwargs": QUIET}
    model = RNNModel(24, model=RRUModule, likelihood=GaussianLikelihood(), **options)
    model.fit(scaled, future_covariates=months)
    assert model.predict(6, num_samples=3, future_covariates=months).all_values().shape == (6, 1, 3)
    model.save(str(tmp_path / "model.pt"))
    again = RNNModel.load(str(tmp_path / "model.pt"), pl_trainer_kwargs=QUIET)
    assert len(again.predict(6, series=scaled, future_covariates=months)) == 6
    past = model.historical_forecasts(
        series(level=1.0), future_covariates=months, start=48, forecast_horizon=6, stride=6, retrain=False
    )
    assert len(past) == 4


def test_a_forecast_may_begin_later():
    forecast = block(output_chunk_shift=3).fit(series(60)).predict(6)
    assert error(forecast, series()[63:69]) < 0.1


class LSTMBlockModule(RRUBlockModule):
    cell = "lstm"


class LSTMModule(RRUModule):
    cell = "lstm"


def test_models_with_a_subclass_are_saved_and_loaded(tmp_path):
    options = {"hidden_dim": 8, "training_length": 30, "n_epochs": 1, "random_state": 0, "pl_trainer_kwargs": QUIET}
    for model in (block(LSTMBlockModule), RNNModel(24, model=LSTMModule, **options)):
        forecast = model.fit(series(60, level=1.0)).predict(6)
        model.save(str(tmp_path / "model.pt"))
        again = type(model).load(str(tmp_path / "model.pt"), pl_trainer_kwargs=QUIET)
        np.testing.assert_allclose(
            again.predict(6, series=series(60, level=1.0)).values(), forecast.values(), rtol=1e-6
        )


def test_the_linear_forecast_counts_for_locations_only():
    assert located(None, 1) == [True]
    assert located(QuantileRegression([0.1, 0.5, 0.9]), 3) == [True] * 3
    assert located(GaussianLikelihood(), 2) == [True, False]
    assert located(LogNormalLikelihood(), 2) == [False, False]
