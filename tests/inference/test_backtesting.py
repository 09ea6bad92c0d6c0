"""Backtests: forecasts from past origins, with weights that have not seen what is forecast."""

import csv
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rru import data, inference
from rru.data import DataError
from rru.inference import classical, held_out
from rru.settings import presets
from rru.training import RunError, train_config

DAYS = np.arange("2026-01-01", "2026-12-31", dtype="datetime64[D]")
LENGTH, HORIZON = 120, 4
TEST = LENGTH - LENGTH // 10  # where the test part begins


def load(day, name):
    return 10 + len(name) + 3 * np.sin(2 * np.pi * day / 7) + ((day * 37) % 11) / 10 + day / 50


def write(path, end=LENGTH, names=("a", "bb"), first=0, dated=True):
    head = ("day," if dated else "") + "load,place"
    rows = [f"{f'{DAYS[n]},' * dated}{load(n, name):.4f},{name}" for name in names for n in range(first, end)]
    path.write_text("\n".join([head, *rows]))
    return path


def train(folder, *changes, dated=True, **options):
    file = write(folder / "energy.csv", dated=dated)
    own = data.from_csv(file, target="load", horizon=HORIZON, id="place", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRU_CACHE_DIR", str(folder / "cache"))
        changes = ["epochs=2", "task.limit=16", "task.refit=true", *changes]
        train_config(presets.override(presets.load(own, "rru", "smoke"), changes), folder / "run")
    return inference.load(folder / "run")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a model whose run also has weights that were trained on all data."""
    found = train(tmp_path_factory.mktemp("series"))
    assert (found.path / "refit" / "result.json").is_file()
    return found


def test_the_test_part_is_forecast_with_the_weights_that_have_not_seen_it(trained):
    made = trained.backtest()
    assert made.series == ["a", "bb"]
    first = [window.origin for window in made.windows if window.series == "a"]
    assert first == [TEST - 1, TEST - 1 + HORIZON, TEST - 1 + 2 * HORIZON]
    assert "weights of epoch" in made.weights
    assert "not seen the test part" in made.weights
    model = held_out.held_out_model(trained)
    assert any(
        (ours != theirs).any() for ours, theirs in zip(model.parameters(), trained.model.parameters(), strict=True)
    )
    for series in (0, 1):  # what it forecasts at the end of the known part, in the ordinary way
        known = write(trained.path.parent / "known.csv", TEST)
        wanted = inference.forecast(replace(trained, model=model), known)[series].quantiles
        assert made.forecasts["RRU"][3 * series] == pytest.approx(wanted, rel=1e-5)
        assert np.abs(inference.forecast(trained, known)[series].quantiles - wanted).max() > 1e-4


def test_what_came_true_and_the_simple_forecasts(trained):
    made = trained.backtest(origins=2, stride=1)
    origins = [window.origin for window in made.windows[:2]]
    assert origins == [LENGTH - HORIZON - 2, LENGTH - HORIZON - 1]
    window, origin = made.windows[1], origins[1]
    assert window.times[0] == DAYS[origin]
    actual = np.round([load(origin + step, "a") for step in range(1, HORIZON + 1)], 4)
    assert window.actual.tolist() == actual.tolist()
    last, start = round(load(origin, "a"), 4), round(load(0, "a"), 4)
    assert made.forecasts["last value"][1].tolist() == [last] * HORIZON
    seasonal = np.round([load(origin + step - 7, "a") for step in range(1, HORIZON + 1)], 4)
    assert made.forecasts["seasonal naive"][1].tolist() == seasonal.tolist()
    drift = last + (last - start) / origin * np.arange(1, HORIZON + 1)
    assert made.forecasts["drift"][1] == pytest.approx(drift)


def test_scores_are_of_all_values_by_step_and_by_series(trained):
    made = trained.backtest()
    model = made.forecasts["RRU"][..., 2]
    actual = np.stack([window.actual for window in made.windows])
    assert made.scores["RRU"]["mae"] == pytest.approx(np.abs(model - actual).mean())
    assert made.by_step()[2]["RRU"]["mae"] == pytest.approx(np.abs(model - actual)[:, 2].mean())
    assert made.by_series()["bb"]["RRU"]["mae"] == pytest.approx(np.abs(model - actual)[3:].mean())
    ranked = [values["mase"] for values in made.scores.values()]
    assert ranked == sorted(ranked)
    assert np.isnan(made.scores["drift"]["coverage_80"])
    assert 0 <= made.scores["RRU"]["coverage_80"] <= made.scores["RRU"]["coverage_95"] <= 100
    assert "MASE: " in repr(made)
    assert "<th>sMAPE</th>" in made._repr_html_()


def test_later_data_is_forecast_with_the_weights_trained_on_all_data(trained, tmp_path):
    made = trained.backtest(write(tmp_path / "grown.csv", LENGTH + 9))
    assert "trained on all data" in made.weights
    origins = [window.origin for window in made.windows[:2]]
    assert origins == [LENGTH, LENGTH + HORIZON]  # 9 steps have room for two of 4, the last at the end
    known = write(tmp_path / "known.csv", LENGTH + 1)
    wanted = inference.forecast(trained, known)[0].quantiles
    assert made.forecasts["RRU"][0] == pytest.approx(wanted, rel=1e-5)
    later = trained.backtest(write(tmp_path / "later.csv", LENGTH + 9, first=60))
    assert [window.times[0] for window in later.windows[:2]] == [DAYS[LENGTH], DAYS[LENGTH + HORIZON]]
    with pytest.raises(ValueError, match=r"origins must be at most 2, got 3: .*grown\.csv has no more steps"):
        trained.backtest(tmp_path / "grown.csv", origins=3)
    shortened = trained.backtest(tmp_path / "grown.csv", horizon=3)
    assert shortened.horizon == 3
    assert [window.origin for window in shortened.windows[:3]] == [LENGTH - 1, LENGTH + 2, LENGTH + 5]


def test_the_own_file_under_its_name_is_the_own_file(trained):
    made, plain = trained.backtest(trained.config.data.path), trained.backtest()
    assert made.weights == plain.weights
    assert (made.forecasts["RRU"] == plain.forecasts["RRU"]).all()


def test_a_new_series_is_scaled_by_what_comes_before_its_first_origin(trained, tmp_path):
    write(tmp_path / "new.csv", LENGTH, names=("ccc",))
    made = trained.backtest(tmp_path / "new.csv", origins=1)
    lines = (tmp_path / "new.csv").read_text().splitlines()
    changed = [f"{line.split(',')[0]},{1000 + n},ccc" for n, line in enumerate(lines[-HORIZON:])]
    (tmp_path / "new.csv").write_text("\n".join([*lines[:-HORIZON], *changed]))
    other = trained.backtest(tmp_path / "new.csv", origins=1)
    assert (other.forecasts["RRU"] == made.forecasts["RRU"]).all()
    assert other.scores["RRU"]["mae"] > 10 * made.scores["RRU"]["mae"]


def test_mistakes_are_one_clear_line(trained, tmp_path):
    with pytest.raises(ValueError, match="horizon must be from 1 to 4, as in training; got 5"):
        trained.backtest(horizon=5)
    with pytest.raises(ValueError, match="stride must be at least 1, got 0"):
        trained.backtest(stride=0)
    with pytest.raises(DataError, match="has no values after 2026-04-30, the end of the training data; leave out data"):
        trained.backtest(write(tmp_path / "old.csv", LENGTH - 20))
    with pytest.raises(
        DataError, match="has 3 steps to test on, fewer than the horizon of 4; horizon must be at most 3"
    ):
        trained.backtest(write(tmp_path / "few.csv", LENGTH + 3))
    with pytest.raises(DataError, match="must have at least two values"):
        trained.backtest(write(tmp_path / "one.csv", LENGTH + 1, first=LENGTH))


def test_an_export_of_weights_trained_on_all_data_needs_later_data(trained, tmp_path):
    trained.export(tmp_path / "model")
    exported = inference.load(tmp_path / "model")
    with pytest.raises(RunError, match=r"were trained on all of energy\.csv; give data"):
        exported.backtest()
    made = exported.backtest(write(tmp_path / "grown.csv", LENGTH + 9))
    assert made.forecasts["RRU"] == pytest.approx(trained.backtest(tmp_path / "grown.csv").forecasts["RRU"], rel=1e-5)


def test_a_file_that_has_grown_is_told_so_and_used_when_named(tmp_path):
    trained = train(tmp_path)
    write(tmp_path / "energy.csv", LENGTH + HORIZON)
    with pytest.raises(DataError, match=r"has changed since the run began: .*; give data=FILE with its name"):
        trained.backtest()
    assert [window.origin for window in trained.backtest(tmp_path / "energy.csv").windows] == [LENGTH - 1] * 2


def test_without_weights_on_all_data_the_test_part_of_a_longer_file_counts(tmp_path):
    trained = train(tmp_path, "task.refit=false")
    made = trained.backtest(write(tmp_path / "grown.csv", LENGTH + HORIZON), origins=4)
    assert [window.origin for window in made.windows[:4]] == [TEST - 1 + HORIZON * n for n in range(4)]


def test_series_without_times(tmp_path):
    trained = train(tmp_path, dated=False, season=7)
    assert trained.backtest().columns()["step"][:2].tolist() == [TEST, TEST + 1]
    made = trained.backtest(write(tmp_path / "new.csv", 60, dated=False))
    assert "has no times: all of it is taken to come after the training data" in made.notes[0]


def test_forecasts_and_scores_are_written(trained, tmp_path):
    made = trained.backtest(origins=1)
    files = made.save(tmp_path / "bt.csv")
    assert [file.name for file in files] == ["bt.csv", "bt-scores.csv"]
    rows = list(csv.DictReader(files[0].read_text().splitlines()))
    assert len(rows) == 2 * HORIZON
    assert rows[0]["origin"] == str(DAYS[LENGTH - HORIZON - 1])
    assert (rows[0]["time"], rows[0]["ahead"], rows[0]["series"]) == (str(DAYS[LENGTH - HORIZON]), "1", "a")
    assert float(rows[0]["actual"]) == pytest.approx(load(LENGTH - HORIZON, "a"), abs=1e-4)
    limits = [float(rows[0][name]) for name in ("low_95", "low_80", "forecast", "high_80", "high_95")]
    assert limits == pytest.approx(made.forecasts["RRU"][0, 0].tolist())
    assert {"last_value", "seasonal_naive", "drift"} <= set(rows[0])
    scores = list(csv.DictReader(files[1].read_text().splitlines()))
    assert {row["of"] for row in scores} == {"all", "step ahead", "series"}
    best = next(row for row in scores if row["method"] == "RRU")
    assert float(best["mase"]) == pytest.approx(made.scores["RRU"]["mase"])
    with pytest.raises(ValueError, match=r"bt\.csv exists; .*force=True"):
        made.save(tmp_path / "bt.csv")


@pytest.fixture
def statsforecast(monkeypatch):
    """Put a package in place of statsforecast, whose methods repeat the last value and know their season."""

    class Method:
        def __init__(self, season_length):
            assert season_length == 7

        def forecast(self, y, h, level):
            assert level == [80, 95]
            return {key: np.full(h, y[-1] + place) for place, key in enumerate(classical.KEYS, -2)}

    class Failing(Method):
        def forecast(self, y, h, level):
            raise NotImplementedError("tiny datasets")

    module = SimpleNamespace(models=SimpleNamespace(AutoETS=Method, AutoTheta=Failing))
    monkeypatch.setitem(sys.modules, "statsforecast", module)
    monkeypatch.setattr(classical, "is_installed", lambda: True)


@pytest.mark.usefixtures("statsforecast")
def test_other_packages_are_compared_if_they_are_there_and_work(trained, monkeypatch):
    made = trained.backtest(origins=1)
    origin = made.windows[0].origin
    assert made.forecasts["AutoETS"][0, 0, 2] == pytest.approx(load(origin, "a"), abs=1e-4)
    assert np.isfinite(made.scores["AutoETS"]["coverage_80"])
    assert "AutoTheta" not in made.forecasts
    assert made.notes == ("AutoTheta is left out: it fails on these series (tiny datasets)",)
    monkeypatch.setattr(classical, "MAX_FITS", 1)
    assert "AutoETS and AutoTheta are left out: 2 forecasts" in trained.backtest(origins=1).notes[0]


def test_the_real_package_gives_quantiles_in_order():
    pytest.importorskip("statsforecast")
    history = np.array([load(day, "a") for day in range(100)])
    found, notes = classical.forecasts([history], HORIZON, 7)
    assert set(found) == set(classical.METHODS)
    assert not notes
    assert all((np.diff(quantiles, axis=-1) > 0).all() for quantiles in found.values())
