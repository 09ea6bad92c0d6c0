"""Series by command, from the file to forecasts and the report."""

import re

import numpy as np
import pytest

DAYS = np.arange("2026-01-01", "2026-05-01", dtype="datetime64[D]")


@pytest.fixture
def command(command):
    """Run a command in an empty folder, and return what it prints as one line."""
    return lambda *arguments, **options: " ".join(command(*arguments, **options).split())


def write(path, end=120):
    path.write_text("day,load\n" + "".join(f"{DAYS[n]},{5 + n % 7 + n / 100}\n" for n in range(end)))


def test_series_from_file_to_forecast_and_report(command, tmp_path):
    write(tmp_path / "energy.csv")
    series = ("energy.csv", "--target", "load", "--horizon", 4)
    said = command("train", *series, "--dry-run")
    assert "series to forecast; 'load'; 120 steps, every day from 2026-01-01 to 2026-04-30, season 7" in said
    assert "by the frequency; forecasts 4" in said
    assert re.search(r"preset auto: context=\d+, batch_size=\d+", said)
    assert not (tmp_path / "runs").exists()
    said = command("train", *series, "--preset", "smoke")
    assert re.search(r"test: mean absolute error [\d.e-]+; repeating last week [\d.]+ \(\d+ % better\)", said)
    assert re.search(r"epoch 1: train loss [\d.]+, validation mase [\d.]+, best by loss: [\d.]+ \(epoch 1\)", said)
    command("report")
    assert "The mark is the epoch with the lowest loss, whose weights" in (tmp_path / "runs/report.html").read_text()
    (run,) = {path.parent for path in (tmp_path / "runs").glob("*/*/*/config.toml")}
    (tmp_path / "energy.csv").unlink()
    write(tmp_path / "new.csv", 60)
    said = command("forecast", run, "--data", "new.csv", "-o", "out/next.csv")
    assert "4 steps of 'load' with 80 % and 95 % intervals: out/next.csv, out/next.png" in said
    assert "on the test split: mean absolute error" in said
    lines = (tmp_path / "out" / "next.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["time", *map(str, DAYS[60:64])]
    assert "out/used.csv, out/used.png" in command("use", "latest", "new.csv", "-o", "out/used.csv")
    assert (tmp_path / "out" / "used.csv").read_text().splitlines() == lines
    assert "intervals: forecast-energy.csv, forecast-energy.png" in command("use", "latest", "new.csv")
    assert "intervals: forecast-energy-2.csv, forecast-energy-2.png" in command("use", "latest", "new.csv")
    write(tmp_path / "short.csv", 9)
    said = command("forecast", run, "--data", "short.csv", "-o", "short-next.csv")
    assert re.search(r"the series has 9 steps, the model reads \d+: expect larger errors", said)
    assert "energy.csv: is gone; give --data" in command("forecast", run, "-o", "gone.csv", code=1)
    assert "overwrite it with --force" in command("forecast", run, "--data", "new.csv", "-o", "out/next.csv", code=2)
    write(tmp_path / "energy.csv")
    command("train", *series, "--preset", "smoke", "--seed", 1)
    command("report", "-o", "page.html")
    page = " ".join((tmp_path / "page.html").read_text().split())
    assert page.count("<h4>Forecast of load") == 1  # of the better run
    assert re.search(
        r"MAE [\d.]+, RMSE [\d.]+, pinball loss [\d.]+. \d+ % of the values are in the 80 % interval", page
    )
    assert re.search(r"MASE of the baselines on the same windows: last value [\d.]+, seasonal naive [\d.]+", page)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--target", "laod", "--horizon", 4), "has no column 'laod'; did you mean 'load'?"),
        (("--target", "load"), "--horizon must be given with --target"),
        (("--target", "load", "--horizon", 100), "horizon must be at most 38"),
        (("--horizon", 4), "--horizon is not for a table without --target"),
        (("--target", "load", "--horizon", 4, "--frequency", "often"), "frequency must be such as h"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_files(command, tmp_path, arguments, said):
    write(tmp_path / "energy.csv")
    code = 1 if "column" in said or "at most" in said else 2  # 1: the file is not as the options say
    assert said in command("train", "energy.csv", *arguments, code=code)
    assert not (tmp_path / "runs").exists()


def test_command_printed_by_tune_works(command, tmp_path):
    write(tmp_path / "energy.csv")
    series = ("energy.csv", "--target", "load", "--horizon", 4, "--calendar")
    said = command("tune", *series, "--preset", "smoke", "--trials", 1)
    printed = said.partition("to train it again: rru ")[2].partition("Next: ")[0]
    assert "--horizon 4 --calendar --cell rru" in printed
    assert "finished" in command(*printed.split())


def test_forecast_needs_a_run_of_series(command):
    assert "nowhere" in command("forecast", "nowhere", code=1)
