"""Forecasting: windows, loss, scores beside the baselines, and learning."""

import numpy as np
import pytest
import torch

from rru import tasks
from rru.data import from_csv
from rru.tasks.series import QUANTILES, QuantileHead, SeriesTask, pinball


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))


def task(tmp_path, table, *, context=12, batch_size=16, **options) -> SeriesTask:
    path = tmp_path / "some.csv"
    rows = zip(*table.values(), strict=True)
    path.write_text("\n".join([",".join(table), *(",".join(map(str, row)) for row in rows)]) + "\n")
    own = from_csv(path, **{"target": "load", "horizon": 4, **options})
    return tasks.load("some", own=own, context=context, batch_size=batch_size)


def wave(count=150, period=6, growth=0.0):
    steps = np.arange(count)
    return np.round(10 + 3 * np.sin(2 * np.pi * steps / period) + growth * steps, 4)


def test_before_training_the_model_gives_its_simple_forecast(tmp_path):
    some = task(tmp_path, {"load": wave()})
    model = some.model("rru", {}, 3000)
    scores = some.evaluate(model, "test")
    assert scores["mase"] == pytest.approx(scores["mase_seasonal"], abs=1e-3)
    assert scores["mase_last"] > 10 * scores["mase_seasonal"]


def test_training_beats_both_baselines(tmp_path):
    steps = np.arange(200)
    load = np.round(wave(200) * (1 + 0.3 * np.sin(steps / 17)), 4)
    some = task(tmp_path, {"load": load}, context=24)
    torch.manual_seed(0)
    model = some.model("rru", {}, 4000)
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for epoch in range(12):
        for batch in some.epoch(torch.Generator().manual_seed(epoch)):
            optimiser.zero_grad()
            some.loss(model, batch)[0].backward()
            optimiser.step()
    scores = some.evaluate(model, "test")
    assert scores["mase"] < 0.8 * min(scores["mase_last"], scores["mase_seasonal"])
    assert "does not beat" not in tasks.verdict(scores)


def test_windows_never_show_the_values_to_be_forecast(tmp_path):
    values = wave()
    some = task(tmp_path, {"load": values})
    series, origins = np.array([0]), np.array([100])
    before = some.windows.features(series, origins)
    some.windows.values[101:] += 50
    some.windows._scaled[101:] += 50
    assert (some.windows.features(series, origins) == before).all()
    assert (some.windows.actual(series, origins) == values[101:105] + 50).all()


def test_inputs_known_in_advance_are_seen_and_others_are_not(tmp_path):
    columns = {"load": wave(), "price": np.arange(150.0), "wind": np.arange(150.0)}
    some = task(tmp_path, columns, columns="wind", known="price")
    ahead = some.windows.features(np.array([0]), np.array([50]))[12:, 0, -2:]  # (H, inputs)
    assert (ahead[:, 0] == 0).all()
    assert (np.diff(ahead[:, 1]) > 0).all()


def test_windows_at_the_beginning_are_marked_where_there_is_no_value(tmp_path):
    some = task(tmp_path, {"load": wave()})
    known = some.windows.features(np.array([0]), np.array([2]))[:, 0, 2]
    assert known.tolist() == [0] * 9 + [1] * 3 + [0] * 4


def test_forecasts_are_in_the_units_of_the_file(tmp_path):
    values = np.round(np.exp(0.02 * np.arange(150)) * wave(), 4)
    some = task(tmp_path, {"load": values}, season=6)
    assert some.windows.scalings[0].floor is not None
    places = np.array([0]), np.array([100])
    targets = some.windows.targets(*places)[..., None].astype(np.float64)
    assert some.windows.forecasts(*places, targets)[:, 0, 0] == pytest.approx(values[101:105], rel=1e-5)


def test_missing_values_are_not_scored(tmp_path):
    values = wave().astype(object)
    values[60:63] = ""
    some = task(tmp_path, {"load": values})
    targets = some.windows.targets(np.array([0]), np.array([60]))[:, 0]
    assert np.isnan(targets).tolist() == [True, True, False, False]
    model = some.model("rru", {}, 3000)
    batch = some.epoch(torch.Generator())[0]
    assert some.loss(model, batch)[0].isfinite()


def test_series_of_very_different_scale_are_scored_alike(tmp_path):
    columns = {"load": np.concatenate([wave(), 1e9 * wave()]), "place": ["a"] * 150 + ["b"] * 150}
    both = task(tmp_path, columns, id="place")
    scores = both.evaluate(both.model("rru", {}, 3000), "test")
    alone = task(tmp_path, {"load": wave()})
    assert scores["mase"] == pytest.approx(alone.evaluate(alone.model("rru", {}, 3000), "test")["mase"], abs=1e-3)


def test_a_series_of_thirty_steps_can_be_learned(tmp_path):
    some = task(tmp_path, {"load": wave(30)}, horizon=3, context=8)
    model = some.model("lstm", {}, 1000)
    some.loss(model, some.epoch(torch.Generator())[0])[0].backward()
    assert set(some.evaluate(model, "valid")) >= {"mae", "rmse", "mase", "pinball", "coverage_80", "coverage_95"}


def test_quantiles_are_in_order():
    head = QuantileHead(3, 5)
    torch.nn.init.normal_(head.weight, std=5)
    quantiles = head(torch.randn(100, 3))
    assert (quantiles.diff(dim=-1) >= 0).all()


def test_the_pinball_loss_is_least_at_the_quantiles():
    values = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    right = torch.quantile(values, torch.tensor(QUANTILES))
    least = pinball(right.expand(len(values), -1), values).mean(0)
    for shift in (-0.2, 0.2):
        assert (pinball((right + shift).expand(len(values), -1), values).mean(0) > least).all()


def test_coverage_is_the_share_of_values_inside_the_intervals(tmp_path):
    noise = np.random.default_rng(0).normal(size=2000)
    some = task(tmp_path, {"load": noise}, season=1)
    model = some.model("rru", {}, 3000)
    unit = some.windows.scalings[0].unit
    centre = float(noise[:1600].mean())
    some.windows.base = "mean"

    def known(*places, **_):
        start = some.windows._start(*some.windows._at(*places))
        quantiles = centre + np.array([-1.96, -1.2816, 0, 1.2816, 1.96])
        return (quantiles - start.T[..., None]) / unit

    class Known(torch.nn.Module):
        weight = next(model.parameters())

        def forward(self, inputs, skip):
            batch = inputs.shape[1]
            places = some._windows_of("test")[:batch]
            return torch.from_numpy(known(*places.T)), None

    some._places["test"] = some._windows_of("test")[:190]
    holder = Known()
    holder.register_parameter("parameter", torch.nn.Parameter(torch.zeros(1)))
    scores = some.evaluate(holder, "test")
    assert scores["coverage_80"] == pytest.approx(80, abs=6)
    assert scores["coverage_95"] == pytest.approx(95, abs=4)


def calibrated(tmp_path, values, learned):
    """Return a task and a model that is calibrated after its intervals were learned so many times too narrow."""
    some = task(tmp_path, {"load": values}, season=1)
    model = some.model("rru", {}, 3000)
    with torch.no_grad():
        model.head.bias[[0, 1, 3, 4]] = learned
    some.calibrate(model)
    return some, model


@pytest.mark.parametrize("learned", [-4.0, 4.0])
def test_calibrated_intervals_hold_their_share_however_wide_they_were_learned(tmp_path, learned):
    noise = np.round(np.random.default_rng(0).normal(size=2000), 4)
    some, model = calibrated(tmp_path, noise, learned)
    before = {name: value.clone() for name, value in model.named_parameters()}
    scores = some.evaluate(model, "test")
    assert scores["coverage_80"] == pytest.approx(80, abs=6)
    assert scores["coverage_95"] == pytest.approx(95, abs=4)
    assert all((before[name] == value).all() for name, value in model.named_parameters())
    assert "head.widening" in model.state_dict()  # kept and exported with the weights


def test_intervals_hold_the_wild_training_part_when_validation_is_calm(tmp_path):
    noise = np.random.default_rng(0).normal(size=600) * np.where(np.arange(600) < 480, 1.0, 0.1)
    some, model = calibrated(tmp_path, np.round(noise, 4), 0.0)
    assert some.evaluate(model, "train")["coverage_80"] >= 80


def test_with_few_validation_values_the_wider_interval_holds_them_all(tmp_path):
    some, model = calibrated(tmp_path, np.round(np.random.default_rng(1).normal(size=100), 4), 0.0)
    assert some.evaluate(model, "valid")["coverage_95"] == 100


def test_calibration_does_not_change_training(tmp_path):
    some, model = calibrated(tmp_path, wave(), 0.0)
    batch = some.epoch(torch.Generator())[0]
    loss = some.loss(model, batch)[0]
    model.head.widening.fill_(9.0)
    assert some.loss(model, batch)[0] == loss


def test_a_model_that_does_not_beat_the_baselines_says_so():
    scores = {"mase": 1.2, "mase_last": 1.5, "mase_seasonal": 1.1}
    assert tasks.verdict(scores) == (
        "MASE 1.200; last value 1.500, seasonal naive 1.100: the model does not beat the simple forecasts; use those"
    )
    assert tasks.verdict({"nll": 3.0}) == ""


def test_the_report_gets_times_and_simple_forecasts(tmp_path):
    hours = np.arange("2026-01-01T00", "2026-01-07T06", dtype="datetime64[h]").astype("datetime64[m]")
    some = task(tmp_path, {"time": hours, "load": wave(len(hours))}, season=6)
    (fan,) = some.details(some.model("rru", {}, 3000))["fans"]
    assert len(fan["times"]) == len(fan["history"]) + len(fan["actual"]) == 20
    assert (fan["times"][0], fan["times"][-1]) == ("2026-01-06 10:00", "2026-01-07 05:00")
    assert fan["seasonal"] == fan["history"][-6:-2]
    assert fan["last"] == [fan["history"][-1]] * 4


def test_a_series_without_times_has_none_to_show(tmp_path):
    some = task(tmp_path, {"load": wave()})
    (fan,) = some.details(some.model("rru", {}, 3000))["fans"]
    assert fan["times"] == []
