"""`rru backtest`, as a user runs it."""

import re

import numpy as np

DAYS = np.arange("2026-01-01", "2026-07-01", dtype="datetime64[D]")


def write(path, end=120):
    rows = [f"{DAYS[n]},{5 + n % 7 + n / 100 + (n * 31 % 13) / 10}\n" for n in range(end)]
    path.write_text("day,load\n" + "".join(rows))


def test_from_training_to_errors(command, tmp_path):
    write(tmp_path / "energy.csv")
    command("train", "energy.csv", "--target", "load", "--horizon", 4, "--preset", "smoke", "--set", "refit=true")
    said = command("backtest", "latest")
    assert "3 forecasts of 4 steps of 'load' from 2026-04-18 to 2026-04-26: the test part of energy.csv" in said
    assert re.search(r"weights of epoch \d+, which have not seen the test part; `forecast` uses those", said)
    rows = re.findall(r"^(RRU|seasonal naive|last value|drift) +([\d.]+) +[\d.]+ % .*$", said, re.MULTILINE)
    assert len(rows) == 4
    assert [float(value) for _, value in rows] == sorted(float(value) for _, value in rows)
    assert re.search(r"^MASE by step +1 +2 +3 +4$", said, re.MULTILINE)
    assert "forecasts and scores: backtest-energy.csv, backtest-energy-scores.csv" in said
    assert "Next: rru forecast " in said
    assert len((tmp_path / "backtest-energy.csv").read_text().splitlines()) == 1 + 3 * 4
    assert "3 forecasts are few to judge by; --stride 1 makes one from every step" in said
    again = command("backtest", "latest", "--stride", 1)
    assert "scores: backtest-energy-2.csv, backtest-energy-2-scores.csv" in again
    assert "--stride" not in again
    exists = command("backtest", "latest", "-o", "backtest-energy.csv", code=2)
    assert "backtest-energy.csv exists; choose another name, or overwrite it with --force" in exists
    write(tmp_path / "grown.csv", 128)
    said = command("backtest", "latest", "--data", "grown.csv", "-o", "later.csv")
    assert "2 forecasts of 4 steps of 'load' from 2026-04-30 to 2026-05-04: grown.csv" in said
    assert "weights trained on all data of the run; what is forecast comes after it" in said
    for arguments, code, error in (
        (("--horizon", 5), 2, "error: horizon must be from 1 to 4, as in training; got 5"),
        (("--origins", 9), 2, "error: origins must be at most 3, got 9"),
        (("--data", "short.csv"), 1, "--horizon must be at most 2"),
        (("--data", "old.csv"), 1, "has no values after 2026-04-30, the end of the training data; leave out --data"),
    ):
        write(tmp_path / "short.csv", 122)
        write(tmp_path / "old.csv", 100)
        assert error in command("backtest", "latest", *arguments, "-o", "wrong.csv", code=code)
        assert not (tmp_path / "wrong.csv").exists()


def test_a_run_of_another_kind_is_told_what_it_can_do(command):
    command("train", "bach", "--preset", "smoke")
    assert "`backtest` needs a run of series; this is a run of bach" in command("backtest", "latest", code=1)
