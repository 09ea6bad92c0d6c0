import numpy as np
import pytest

pytest.importorskip("neuralforecast", reason="neuralforecast is not installed")
import pandas as pd
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import DistributionLoss, MQLoss

from rru.integrations.neuralforecast import RRU, located

pytestmark = pytest.mark.filterwarnings("ignore")  # those of neuralforecast and Lightning
SIZES = {"h": 4, "input_size": 16, "max_steps": 3, "accelerator": "cpu"}


@pytest.fixture(scope="module")
def frame():
    times, rows = pd.date_range("2020-01-31", periods=60, freq="ME"), []
    for name, level in (("a", 100.0), ("b", 7.0)):
        values = level * (1 + 0.3 * np.sin(2 * np.pi * np.arange(60) / 12))
        rows.append(
            pd.DataFrame({"unique_id": name, "ds": times, "y": values, "month": times.month, "noise": values[::-1]})
        )
    return pd.concat(rows, ignore_index=True)


def test_models_are_cross_validated_saved_and_loaded(frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exogenous = {"futr_exog_list": ["month"], "hist_exog_list": ["noise"], "stat_exog_list": ["north"]}
    models = [
        RRU(**SIZES, season=12),
        RRU(**SIZES, recurrent=True, alias="steps"),
        RRU(**SIZES, **exogenous, loss=MQLoss(level=[80]), alias="quantiles"),
        RRU(**SIZES, **exogenous, recurrent=True, cell="gru", alias="gru"),
        RRU(**SIZES, loss=DistributionLoss("StudentT", level=[80]), alias="distribution"),
    ]
    static = pd.DataFrame({"unique_id": ["a", "b"], "north": [1, 0]})
    forecaster = NeuralForecast(models=models, freq="ME")
    scores = forecaster.cross_validation(frame, static_df=static, n_windows=2, step_size=4)
    relative = (scores["RRU"] - scores["y"]).abs() / scores["y"]
    assert relative.mean() < 0.05  # it starts from a linear forecast
    assert (scores["quantiles-lo-80"] <= scores["quantiles-hi-80"]).mean() > 0.9
    forecaster.fit(frame, static_df=static)
    future = forecaster.make_future_dataframe()
    future["month"] = future["ds"].dt.month
    forecast = forecaster.predict(futr_df=future)
    forecaster.save("saved", save_dataset=True)
    again = NeuralForecast.load("saved").predict(futr_df=future)
    pd.testing.assert_frame_equal(forecast, again[forecast.columns])
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_the_linear_forecast_counts_for_locations_only():
    assert located(MQLoss(level=[80])) == [True] * 3
    assert located(DistributionLoss("StudentT")) == [False, True, False]
    assert located(DistributionLoss("Poisson")) == [False]


def test_a_patch_must_divide_the_input():
    with pytest.raises(ValueError, match="patch must divide the 16 steps of the context, got 5"):
        RRU(**SIZES, patch=5)
