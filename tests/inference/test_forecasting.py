"""`rru forecast`: forecasts of new data from a run on series, without the data it was trained on."""

import csv
import json

import numpy as np
import pytest
import torch
from PIL import ImageDraw

from rru import data, inference
from rru.data import DataError
from rru.inference.fans import picture
from rru.inference.forecasting import places, table, write_forecasts
from rru.settings import presets
from rru.training import RunError, train_config
from rru.training.from_config import assemble

DAYS = np.arange("2026-01-01", "2026-05-31", dtype="datetime64[D]")


def rows(first=0, end=150, place=None):
    wave = 10 + 3 * np.sin(2 * np.pi * np.arange(len(DAYS)) / 7)
    tail = "" if place is None else f",{place}"
    return [f"{DAYS[day]},{wave[day]:.4f},{day % 5}{tail}" for day in range(first, end)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a function that trains a tiny run on days of a weekly wave."""
    folder = tmp_path_factory.mktemp("series")
    made = {}

    def make(**options):
        key = json.dumps(options, sort_keys=True)
        if key not in made:
            file = folder / f"train-{len(made)}.csv"
            several = [*rows(place="a"), *rows(place="b")] if "id" in options else rows()
            file.write_text("\n".join(["day,load,price" + (",place" if "id" in options else ""), *several]))
            own = data.from_csv(file, target="load", horizon=5, **options)
            run = folder / f"run-{len(made)}"
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RRU_CACHE_DIR", str(folder / "cache"))
                config = presets.override(presets.load(own, "rru", "smoke"), ["epochs=1", "limit=16"])
                train_config(config, run)
            file.unlink()  # a run works after its data is gone
            made[key] = inference.load(run)
        return made[key]

    return make


def write(tmp_path, lines, head="day,load,price"):
    path = tmp_path / "new.csv"
    path.write_text("\n".join([head, *lines]))
    return path


def test_a_forecast_goes_on_where_the_file_ends(trained, tmp_path):
    (one,) = inference.forecast(trained(), write(tmp_path, rows(30, 90)))
    assert one.quantiles.shape == (5, 5)
    assert (np.diff(one.quantiles, axis=1) >= 0).all()
    assert one.times[-5] == DAYS[90]
    truth = 10 + 3 * np.sin(2 * np.pi * np.arange(90, 95) / 7)
    assert one.quantiles[:, 2] == pytest.approx(truth, abs=1.5)


def test_forecasts_can_be_compared_without_an_error_about_arrays(trained, tmp_path):
    (one,) = inference.forecast(trained(), write(tmp_path, rows(30, 90)))
    assert one in [one]
    assert one not in inference.forecast(trained(), write(tmp_path, rows(30, 90)))


def test_table_and_picture(trained, tmp_path):
    files = places(tmp_path / "forecast.csv", force=False)
    write_forecasts(inference.forecast(trained(), write(tmp_path, rows(0, 60))), files)
    lines = list(csv.reader(files[0].read_text().splitlines()))
    assert lines[0] == ["time", "forecast", "low_80", "high_80", "low_95", "high_95"]
    assert [line[0] for line in lines[1:]] == [str(day) for day in DAYS[60:65]]
    middle, low, high = (float(value) for value in lines[1][1:4])
    assert low <= middle <= high
    assert files[1].read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="exists; choose another name, or overwrite it with force=True"):
        places(tmp_path / "forecast.csv", force=False)
    with pytest.raises(ValueError, match=r"output must be a \.csv file"):
        places(tmp_path / "forecast.png", force=False)


def test_several_series_known_and_new(trained, tmp_path):
    lines = [*rows(0, 60, "b"), *rows(0, 50, "new")]
    found = inference.forecast(trained(id="place"), write(tmp_path, lines, "day,load,price,place"))
    assert [one.name for one in found] == ["b", "new"]
    assert table(found).decode().splitlines()[0].startswith("series,time,forecast")


def test_a_series_of_one_value_is_forecast_beside_others_and_one_without_any_is_left_out(trained, tmp_path):
    lines = [*rows(0, 60, "a"), "2026-03-01,7,0,one", "2026-03-01,,0,none"]
    found = inference.forecast(trained(id="place"), write(tmp_path, lines, "day,load,price,place"))
    assert [one.name for one in found] == ["a", "one"]
    assert found[1].quantiles[:, 2] == pytest.approx([7] * 5, rel=0.5)


def test_long_horizons_can_be_tried_and_evaluated_on_new_data(tmp_path, monkeypatch):
    """The context is as short as the series asks for, here shorter than the horizon."""
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    own = data.from_csv(write(tmp_path, rows()), target="load", horizon=45)
    config = presets.override(presets.load(own, "rru", "smoke"), ["epochs=1", "limit=16"])
    assert config.task.context < 45
    train_config(config, tmp_path / "run")
    model = inference.load(tmp_path / "run")
    assert model.evaluate(own.path)["mase"] > 0
    assert model.forecast(own.path)[0].quantiles.shape == (45, 5)


def test_the_preset_smoke_has_room_for_long_windows(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    lines = [f"{step % 24 + np.sin(step):.3f}" for step in range(3000)]
    own = data.from_csv(write(tmp_path, lines, "load"), target="load", horizon=200, frequency="h")
    config = presets.load(own, "rru", "smoke")
    assert config.task.context * 200 > 20_000
    assert assemble(config).model.layers.hidden_size > 1


def test_settings_of_one_version_with_facts_of_another_are_refused(trained):
    good = trained()
    (good.path / "data.json").write_text(json.dumps({**good.facts.fields(), "base": "last"}))
    with pytest.raises(RunError, match="must be of the same version of rru"):
        inference.load(good.path)
    (good.path / "data.json").write_text(json.dumps(good.facts.fields()))


def test_columns_known_in_advance_must_go_on(trained, tmp_path):
    model = trained(known="price", calendar=True)
    ahead = [f"{DAYS[day]},,3" for day in range(60, 65)]
    (one,) = inference.forecast(model, write(tmp_path, [*rows(0, 60), *ahead]))
    assert len(one.history) == 60
    other = [f"{DAYS[day]},,0" for day in range(60, 65)]
    (changed,) = inference.forecast(model, write(tmp_path, [*rows(0, 60), *other]))
    assert (one.quantiles != changed.quantiles).any()
    with pytest.raises(DataError, match="must have price of the 5 steps after the last 'load' of the series"):
        inference.forecast(model, write(tmp_path, [*rows(0, 60), *ahead[:2]]))


def test_short_and_extreme_histories_give_finite_forecasts(trained, tmp_path):
    for lines in (
        rows(0, 3),
        [f"{DAYS[day]},7,0" for day in range(20)],
        [f"{DAYS[day]},{day * 1e12},0" for day in range(20)],
    ):
        (one,) = inference.forecast(trained(), write(tmp_path, lines))
        assert np.isfinite(one.quantiles).all()


def test_other_data_is_refused(trained, tmp_path):
    with pytest.raises(DataError, match="has no column 'load'"):
        inference.forecast(trained(), write(tmp_path, ["2026-01-01,1", "2026-01-02,2"], "day,other"))
    with pytest.raises(DataError, match="is gone; give data, a table"):
        inference.forecast(trained())  # the file it was trained on is gone


def test_a_run_whose_facts_are_damaged_is_refused(trained, tmp_path):
    good = trained()
    for change in ({"horizon": -1}, {"base": None, "series": {"": {}}}, {"layout": {}}):
        (good.path / "data.json").write_text(json.dumps({**good.facts.fields(), **change}))
        with pytest.raises(RunError, match=r"data\.json"):
            inference.load(good.path)
    (good.path / "data.json").write_text(json.dumps(good.facts.fields()))


def test_an_export_forecasts_as_its_run(trained, tmp_path):
    new = write(tmp_path, rows(0, 60))
    inference.export(trained(), tmp_path / "model", "safetensors")
    (one,), (other,) = inference.forecast(trained(), new), inference.forecast(inference.load(tmp_path / "model"), new)
    assert (one.quantiles == other.quantiles).all()
    assert "`rru.inference.forecast` in Python" in (tmp_path / "model" / "README.md").read_text()


def test_a_model_that_could_take_all_memory_is_refused(trained, tmp_path):
    good = trained()
    broken = inference.Trained(**{**good.__dict__, "config": good.config.changed({"task.context": 7 * 10**12})})
    with pytest.raises(RunError, match="context and horizon must be at most 1048576 steps"):
        inference.forecast(broken, write(tmp_path, rows(0, 60)))


def test_times_below_a_second(tmp_path, monkeypatch):
    """A sensor read a hundred times a second."""
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    times = np.datetime64("2026-01-01T00:00:00", "us") + np.arange(120) * np.timedelta64(10_000, "us")
    lines = [f"{time},{np.sin(step / 5):.4f}" for step, time in enumerate(times)]
    own = data.from_csv(write(tmp_path, lines, "t,load"), target="load", horizon=3)
    assert "every 10000 microseconds" in own.summary
    train_config(presets.override(presets.load(own, "rru", "smoke"), ["epochs=1", "limit=16"]), tmp_path / "run")
    found = inference.forecast(inference.load(tmp_path / "run"), own.path)
    assert "2026-01-01T00:00:01.200000," in table(found).decode()


def test_forecasts_are_labelled_with_the_integers_that_follow(tmp_path, monkeypatch):
    """A weekly series whose last step is 2179."""
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    lines = [f"W{which},{step},{10 + step % 4}" for which, first in ((1, 2000), (2, 1)) for step in range(first, 2180)]
    own = data.from_csv(
        write(tmp_path, lines, "id,step,value"), target="value", id="id", time="step", horizon=3, frequency="W"
    )
    train_config(presets.override(presets.load(own, "rru", "smoke"), ["epochs=1", "limit=16"]), tmp_path / "run")
    found = inference.forecast(inference.load(tmp_path / "run"), own.path)
    assert [line.split(",")[:2] for line in table(found).decode().splitlines()] == [
        ["series", "step"],
        *([name, str(step)] for name in ("W1", "W2") for step in (2180, 2181, 2182)),
    ]
    assert found.columns()["step"].tolist() == [2180, 2181, 2182] * 2
    labels = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageDraw.ImageDraw, "text", lambda pen, place, text, **rest: labels.append(text))
        picture(found)
    assert {"2179", "2182"} <= set(labels)
    fans = json.loads((tmp_path / "run" / "details.json").read_text())["fans"]
    for fan in fans:
        assert [10 + int(time) % 4 for time in fan["times"]] == fan["history"] + fan["actual"]
    assert int(fans[0]["times"][0]) > 2000


def test_rows_without_times_are_counted_from_0():
    one = inference.Forecast("", "load", np.arange(30.0), np.ones((4, 5)), None)
    assert inference.Forecasts([one]).columns()["step"].tolist() == [30, 31, 32, 33]


def test_only_runs_on_series_forecast(trained):
    good = trained()
    other = inference.Trained(**{**good.__dict__, "config": presets.load("bach", "rru", "smoke")})
    with pytest.raises(
        RunError, match="`forecast` needs a run of series; this is a run of bach: music, for `compose`, `stream`"
    ):
        inference.forecast(other)


def test_the_report_gets_the_last_forecasts_of_the_test_part(trained):
    details = json.loads((trained().path / "details.json").read_text())
    (fan,) = details["fans"]
    assert details["target"] == "load"
    assert len(fan["actual"]) == len(fan["quantiles"]) == 5
    assert torch.tensor(fan["quantiles"]).shape == (5, 5)


@pytest.mark.parametrize("value", [0.0, 7.5, -3e-9, 1e30])
def test_a_forecast_that_does_not_change_can_be_drawn(value):
    one = inference.Forecast("", "load", np.full(30, value), np.full((4, 5), value), None)
    assert picture([one]).startswith(b"\x89PNG")
