"""Forecasting: which windows are drawn, the loss, scores beside the baselines, calibration, and learning."""

import numpy as np
import pytest
import torch

from rru import tasks
from rru.data import from_csv
from rru.tasks.calibration import TRUSTS
from rru.tasks.forecaster import MEDIAN
from rru.tasks.series import SeriesTask, trimmed_mean


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))


def task(tmp_path, table, *, context=12, batch_size=16, patch=2, everything=False, limits=(None, None), **options):
    path = tmp_path / "some.csv"
    rows = zip(*table.values(), strict=True)
    path.write_text("\n".join([",".join(table), *(",".join(map(str, row)) for row in rows)]) + "\n")
    own = from_csv(path, **{"target": "load", "horizon": 4, **options})
    settings = {"context": context, "batch_size": batch_size, "patch": patch, "everything": everything}
    made = tasks.load("some", own=own, limit=limits[0], evaluation_limit=limits[1], **settings)
    assert isinstance(made, SeriesTask)
    return made


def wave(count=150, period=6, growth=0.0):
    steps = np.arange(count)
    return np.round(10 + 3 * np.sin(2 * np.pi * steps / period) + growth * steps, 4)


def rough(count=150, seed=0):
    return np.round(wave(count) + np.random.default_rng(seed).normal(size=count), 4)


def drawn(some, seed):
    """Return the windows of an epoch, (steps, T + H, B, m)."""
    return torch.stack([batch.inputs for batch in some.epoch(torch.Generator().manual_seed(seed))])


def fitted(some, epochs=12, lr=0.01, budget=4000):
    torch.manual_seed(0)
    model = some.model("rru", {}, budget)
    optimiser = torch.optim.Adam(model.parameters(), lr)
    for epoch in range(epochs):
        for batch in some.epoch(torch.Generator().manual_seed(epoch)):
            optimiser.zero_grad()
            some.loss(model, batch)[0].backward()
            optimiser.step()
    return model


class TestDraws:
    def test_every_epoch_draws_other_windows_and_a_seed_always_the_same(self, tmp_path):
        some = task(tmp_path, {"load": rough()})
        first = drawn(some, 1)
        assert len(first) == some.steps_per_epoch() > 1
        assert first.equal(drawn(some, 1))
        assert not first.equal(drawn(some, 2))

    def test_all_series_are_drawn_alike_however_long(self, tmp_path):
        columns = {"load": np.concatenate([rough(600), rough(60)]), "place": ["a"] * 600 + ["b"] * 60}
        some = task(tmp_path, columns, id="place")
        places = np.concatenate([some._drawn(np.random.default_rng(seed).random((2, 500))) for seed in range(4)])
        assert np.mean(places[:, 0] == 0) == pytest.approx(0.5, abs=0.05)

    def test_windows_end_anywhere_in_the_training_part_and_never_beyond(self, tmp_path):
        some = task(tmp_path, {"load": rough()})
        origins = some._drawn(np.random.default_rng(0).random((2, 5000)))[:, 1]
        last = some._series.splits[0, 0] - 1
        assert origins.max() + 4 == last
        assert set(range(20, last - 3)) <= set(origins.tolist())

    def test_on_everything_they_end_anywhere_in_the_series(self, tmp_path):
        some = task(tmp_path, {"load": rough()}, everything=True)
        assert some._drawn(np.random.default_rng(0).random((2, 5000)))[:, 1].max() + 4 == 149

    def test_a_limit_counts_windows(self, tmp_path):
        assert task(tmp_path, {"load": rough()}, limits=(48, None)).steps_per_epoch() == 3

    def test_a_series_of_thirty_steps_can_be_learned(self, tmp_path):
        some = task(tmp_path, {"load": wave(30)}, horizon=3, context=8)
        model = some.model("lstm", {}, 1000)
        some.loss(model, some.epoch(torch.Generator())[0])[0].backward()
        assert set(some.evaluate(model, "valid")) >= {"mae", "rmse", "mase", "pinball", "coverage_80", "coverage_95"}

    def test_series_too_short_for_a_window_are_never_drawn(self, tmp_path):
        columns = {"load": [*rough(), 1, 2, 5], "place": ["a"] * 150 + ["b"] * 3}
        some = task(tmp_path, columns, id="place")
        assert len(some.facts.series) == 2
        assert set(some._drawn(np.random.default_rng(0).random((2, 500)))[:, 0]) == {0}


class TestLoss:
    def test_values_that_are_missing_do_not_count(self, tmp_path):
        some = task(tmp_path, {"load": rough()})
        model, batch = some.model("rru", {}, 3000), some.epoch(torch.Generator().manual_seed(0))[0]
        alone = some.loss(model, batch)[0]
        batch.targets[1] += 1e6
        assert some.loss(model, batch)[0] > 100 * alone
        batch.targets[1] = torch.nan
        loss = some.loss(model, batch)[0]
        loss.backward()
        assert loss.item() == pytest.approx(alone.item(), rel=0.5)
        assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())

    def test_windows_whose_values_are_all_missing_have_none(self, tmp_path):
        some = task(tmp_path, {"load": rough()})
        batch = some.epoch(torch.Generator())[0]
        batch.targets[:] = torch.nan
        assert some.loss(some.model("rru", {}, 3000), batch)[0] == 0

    def test_calibration_does_not_change_it(self, tmp_path):
        some = task(tmp_path, {"load": rough()})
        model, batch = some.model("rru", {}, 3000), some.epoch(torch.Generator())[0]
        loss = some.loss(model, batch)[0]
        model.widening.fill_(9.0)
        model.trust.fill_(0.0)
        assert some.loss(model, batch)[0] == loss


class TestScores:
    def test_before_training_a_wave_is_continued(self, tmp_path):
        some = task(tmp_path, {"load": wave()})
        scores = some.evaluate(some.model("rru", {}, 3000), "test")
        assert scores["mae"] == pytest.approx(0, abs=1e-3)
        assert scores["mae_last"] > 1

    def test_a_series_that_repeats_exactly_has_finite_scores(self, tmp_path):
        some = task(tmp_path, {"load": [number % 6 for number in range(150)]}, season=6)
        model = some.model("rru", {}, 3000)
        some.calibrate(model)
        assert all(np.isfinite(score) for score in some.evaluate(model, "valid").values())

    def test_training_beats_both_baselines(self, tmp_path):
        load = np.round(wave(200) * (1 + 0.3 * np.sin(np.arange(200) / 17)), 4)
        some = task(tmp_path, {"load": load}, context=24)
        scores = some.evaluate(fitted(some), "test")
        assert scores["mase"] < 0.8 * min(scores["mase_last"], scores["mase_seasonal"])
        assert "does not beat" not in tasks.verdict(scores)

    def test_training_learns_what_no_linear_forecast_can(self, tmp_path):
        """The logistic map, which looks like noise to one."""
        values = [0.4]
        for _ in range(599):
            values.append(round(3.8 * values[-1] * (1 - values[-1]), 6))
        some = task(tmp_path, {"load": values}, horizon=1, context=4, patch=1, season=1)
        before = some.evaluate(some.model("rru", {}, 4000), "test")["mae"]
        assert some.evaluate(fitted(some, 30), "test")["mae"] < 0.5 * before

    def test_series_of_very_different_scale_are_scored_alike(self, tmp_path):
        columns = {"load": np.concatenate([rough(), 1e9 * rough()]), "place": ["a"] * 150 + ["b"] * 150}
        both, alone = task(tmp_path, columns, id="place"), task(tmp_path, {"load": rough()})
        scores = [some.evaluate(some.model("rru", {}, 3000), "test") for some in (both, alone)]
        assert scores[0]["mase"] == pytest.approx(scores[1]["mase"], rel=0.05)
        assert scores[0]["loss"] == pytest.approx(scores[1]["loss"], rel=0.05)

    def test_coverage_is_the_share_of_values_inside_the_intervals(self, tmp_path):
        some = task(tmp_path, {"load": np.round(np.random.default_rng(0).normal(size=2000), 4)}, season=1)
        scaling = some.windows.scalings[0]
        quantiles = (torch.tensor([-1.96, -1.2816, 0, 1.2816, 1.96]) - scaling.centre) / scaling.unit

        class Normal(torch.nn.Linear):
            def forward(self, inputs):
                return quantiles.expand(4, inputs.shape[1], 5).double(), None

        scores = some.evaluate(Normal(1, 1), "test")
        assert scores["coverage_80"] == pytest.approx(80, abs=6)
        assert scores["coverage_95"] == pytest.approx(95, abs=4)

    def test_the_hardest_series_do_not_decide_between_epochs(self):
        losses, series = np.array([1.0, 3, 2, 4, 900]), np.array([0, 0, 1, 2, 3])
        assert trimmed_mean(losses, series) == (2 + 2 + 4 + 900) / 4
        many = np.arange(20.0)
        assert trimmed_mean(many, np.arange(20)) == many[:19].mean()

    def test_epochs_are_compared_by_loss_and_on_everything_the_last_is_best(self, tmp_path):
        some = task(tmp_path, {"load": rough()})
        better, worse = {"loss": 1.0, "mase": 2.0}, {"loss": 1.1, "mase": 1.0}
        assert some.better(better, worse)
        assert not some.better(worse, better)
        assert task(tmp_path, {"load": rough()}, everything=True).better(worse, better)

    def test_a_model_that_does_not_beat_the_baselines_says_so(self):
        scores = {"mase": 1.2, "mase_last": 1.5, "mase_seasonal": 1.1}
        assert tasks.verdict(scores) == (
            "MASE 1.200; last value 1.500, seasonal naive 1.100: the model does not beat the simple forecasts; "
            "use those"
        )
        assert tasks.verdict({"nll": 3.0}) == ""


def calibrated(tmp_path, values, learned):
    """Return a task and a model that is calibrated after its intervals were learned so wide."""
    some = task(tmp_path, {"load": values}, season=1)
    model = some.model("rru", {}, 3000)
    with torch.no_grad():
        model.head.bias.unflatten(0, (4, 5))[:, [0, 1, 3, 4]] = learned
    some.calibrate(model)
    return some, model


def several(tmp_path, *, calm_in_test=False, **options):
    """Return a task of a calm series, a wild one and one of nine steps, and a model that takes all for equally wild."""
    sizes = np.where(np.arange(1000) < (900 if calm_in_test else 1000), 3.0, 0.3)
    values = {"calm": noise(1000, 1), "wild": noise(1000, 2) * sizes, "x": noise(9, 3)}
    rows = [(name, value) for name, each in values.items() for value in (100 + each).round(4)]
    table = {"id": [name for name, _ in rows], "load": [value for _, value in rows]}
    some = task(tmp_path, table, season=1, id="id", **options)
    return some, some.model("rru", {}, 3000)


def coverage_by_series(some, model):
    places = np.concatenate(list(some.evaluated("test")))
    with tasks.evaluating(model):
        inside = some.measured(model, places)["coverage_80"]
    return [inside[places[:, 0] == number].mean() for number in np.unique(places[:, 0])]


def noise(count=2000, seed=0):
    return np.round(np.random.default_rng(seed).normal(size=count), 4)


class TestCalibration:
    @pytest.mark.parametrize("learned", [-4.0, 4.0])
    def test_intervals_hold_their_share_however_wide_they_were_learned(self, tmp_path, learned):
        some, model = calibrated(tmp_path, noise(), learned)
        scores = some.evaluate(model, "test")
        assert scores["coverage_80"] == pytest.approx(80, abs=6)
        assert scores["coverage_95"] == pytest.approx(95, abs=4)
        assert {"widening", "trust"} <= set(model.state_dict())  # kept and exported with the weights

    def test_intervals_that_were_learned_without_any_width_stay_finite(self, tmp_path):
        some, model = calibrated(tmp_path, noise(200), -200.0)
        assert all(np.isfinite(score) for score in some.evaluate(model, "test").values())

    def test_weights_stay_as_they_are(self, tmp_path):
        some = task(tmp_path, {"load": rough()})
        model = fitted(some, 1)
        before = {name: value.clone() for name, value in model.named_parameters()}
        some.calibrate(model)
        assert all((before[name] == value).all() for name, value in model.named_parameters())

    def test_intervals_hold_the_wild_training_part_when_validation_is_calm(self, tmp_path):
        wild = noise(600) * np.where(np.arange(600) < 480, 1.0, 0.1)
        some, model = calibrated(tmp_path, np.round(wild, 4), 0.0)
        assert some.evaluate(model, "train")["coverage_80"] >= 80

    def test_with_few_validation_values_the_wider_interval_holds_them_all(self, tmp_path):
        some, model = calibrated(tmp_path, noise(100, 1), 0.0)
        assert some.evaluate(model, "valid")["coverage_95"] == 100

    def test_a_correction_that_makes_forecasts_of_noise_worse_is_not_trusted(self, tmp_path):
        some = task(tmp_path, {"load": noise(400)}, season=1)
        model = some.model("rru", {}, 3000)
        torch.nn.init.normal_(model.change, std=0.3)
        some.calibrate(model)
        assert model.trust == 0
        untrained = some.model("rru", {}, 3000)
        for split in ("valid", "test"):
            assert some.evaluate(model, split)["mae"] == pytest.approx(some.evaluate(untrained, split)["mae"])

    def test_a_correction_that_helps_is_trusted(self, tmp_path):
        some = task(tmp_path, {"load": rough(400)})
        model = some.model("rru", {}, 3000)
        with torch.no_grad():
            model.change.copy_(model.start)
            model.start.zero_()
        some.calibrate(model)
        assert model.trust >= 0.75

    def test_the_trust_is_the_best_of_those_that_a_model_may_have(self, tmp_path):
        some = task(tmp_path, {"load": noise(400)}, season=1)
        model = fitted(some, 10, lr=0.03)
        some.calibrate(model)
        chosen = model.trust.item()
        losses = {}
        for trust in TRUSTS:
            model.trust.fill_(trust)
            model.widening.fill_(1.0)
            losses[trust] = some.evaluate(model, "valid")["loss"]
        assert losses[chosen] == min(losses.values())

    def test_wild_series_get_wider_intervals_than_calm_ones(self, tmp_path):
        some, model = several(tmp_path)
        some.calibrate(model)
        calm, wild, short = model.widths.tolist()
        assert calm < 0.8 < 1.2 < wild
        assert short == 1  # none of its values is in the validation part
        model.widths.fill_(1.0)
        before = coverage_by_series(some, model)
        some.calibrate(model)
        after = coverage_by_series(some, model)
        assert abs(after[0] - 80) < abs(before[0] - 80)
        assert abs(after[1] - 80) < abs(before[1] - 80)

    def test_forecasts_of_other_series_are_as_wide_as_those_of_all(self, tmp_path):
        _, model = several(tmp_path)
        model.widths.copy_(torch.tensor([0.5, 2.0, 1.0]))
        quantiles = torch.tensor([1.0, 2, 4, 5, 7]).expand(4, 3, 5)
        widened = model.widened(quantiles, np.array([1, -1, 0]))
        assert widened[0].tolist() == [[-2, 0, 4, 6, 10], [1, 2, 4, 5, 7], [2.5, 3, 4, 4.5, 5.5]]

    def test_on_everything_widths_of_series_follow_the_test_part_too(self, tmp_path):
        some, model = several(tmp_path, calm_in_test=True)
        some.calibrate(model)
        whole, again = several(tmp_path, calm_in_test=True, everything=True)
        whole.inherit(again, model.state_dict())
        assert 1 < again.widths[1] < model.widths[1]

    def test_on_everything_trust_and_widths_are_those_found_before(self, tmp_path):
        before, model = calibrated(tmp_path, noise(400), 1.0)
        model.trust.fill_(0.25)
        whole = task(tmp_path, {"load": noise(400)}, season=1, everything=True)
        again = whole.model("rru", {}, 3000)
        whole.inherit(again, model.state_dict())
        whole.calibrate(again)
        assert again.trust == 0.25
        assert again.widening.equal(model.widening)
        assert not again.start.equal(before.model("rru", {}, 3000).start)  # it is fitted to all parts


class TestDetails:
    def test_the_report_gets_times_and_simple_forecasts(self, tmp_path):
        hours = np.arange("2026-01-01T00", "2026-01-07T06", dtype="datetime64[h]").astype("datetime64[m]")
        some = task(tmp_path, {"time": hours, "load": wave(len(hours))}, season=6)
        (fan,) = some.details(some.model("rru", {}, 3000))["fans"]
        assert len(fan["times"]) == len(fan["history"]) + len(fan["actual"]) == 20
        assert (fan["times"][0], fan["times"][-1]) == ("2026-01-06 10:00", "2026-01-07 05:00")
        assert fan["seasonal"] == fan["history"][-6:-2]
        assert fan["last"] == [fan["history"][-1]] * 4
        assert [row[MEDIAN] for row in fan["quantiles"]] == pytest.approx(fan["actual"], abs=0.01)

    def test_a_series_without_times_has_none_to_show(self, tmp_path):
        some = task(tmp_path, {"load": wave()})
        (fan,) = some.details(some.model("rru", {}, 3000))["fans"]
        assert fan["times"] == []
