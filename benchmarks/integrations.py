"""The same data through the command, `rru.fit` and the estimators and models of `rru.integrations`.

    python -m benchmarks.integrations series seatbelts sktime
    python -m benchmarks.integrations classes ItalyPowerDemand sklearn

Prints one line of JSON: MASE of forecasts from three origins without training again, or accuracy on the test part of
the set; and the seconds of processor time. The data comes with sktime, which must be installed.
"""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sktime import datasets

import rru

HORIZON, ORIGINS, SEASON = 12, 3, 12
CLASSES = {"ItalyPowerDemand": datasets.load_italy_power_demand, "BasicMotions": datasets.load_basic_motions}
BELTS = Path(datasets.__file__).parent / "data" / "seatbelts" / "seatbelts.csv"  # killed or injured on British roads
QUIET = {"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False, "logger": False}


def seatbelts():
    """Return the drivers killed or seriously injured in Great Britain, by month."""
    read = pd.read_csv(BELTS, index_col=0, parse_dates=True)["KSI"]
    return read.to_period("M").astype(float)


SERIES = {"airline": datasets.load_airline, "seatbelts": seatbelts}


def parts(series):
    """Return the training part, and the known part and the next steps of every origin."""
    ends = [len(series) - HORIZON * (ORIGINS - number) for number in range(ORIGINS)]
    return series[: ends[0]], [(series[:end], series[end : end + HORIZON].to_numpy()) for end in ends]


def table(series):
    """Return a series as a table with times."""
    return pd.DataFrame({"time": series.index.to_timestamp(), "value": series.to_numpy(np.float64)})


def by_fit(training, known, folder):
    """Forecast after each known part with `rru.fit`."""
    options = {"target": "value", "horizon": HORIZON, "time": "time", "progress": False, "folder": folder / "run"}
    trained = rru.fit(table(training), **options)
    return [trained.predict(table(each)) for each in known]


def by_command(training, known, folder):
    """Forecast with the commands `rru train` and `rru forecast`."""
    table(training).to_csv(folder / "train.csv", index=False)
    command = [sys.executable, "-m", "rru"]
    reading = ["--target", "value", "--horizon", str(HORIZON), "--time", "time", "--runs", str(folder / "runs")]
    subprocess.run([*command, "train", str(folder / "train.csv"), *reading], check=True, capture_output=True)
    (run,) = (folder / "runs" / "train" / "rru").iterdir()
    found = []
    for number, each in enumerate(known):
        file, output = folder / f"{number}.csv", folder / f"forecast-{number}.csv"
        table(each).to_csv(file, index=False)
        subprocess.run(
            [*command, "forecast", str(run), "--data", str(file), "-o", str(output)], check=True, capture_output=True
        )
        found.append(pd.read_csv(output)["forecast"].to_numpy())
    return found


def by_sktime(training, known, folder):
    """Forecast with sktime."""
    from rru.integrations.sktime import RRUForecaster

    forecaster, found = RRUForecaster(random_state=0).fit(training, fh=range(1, HORIZON + 1)), []
    for each in known:
        if len(each) > len(training):
            forecaster.update(each[-HORIZON:], update_params=False)
        found.append(forecaster.predict().to_numpy())
    return found


def best(lengths, training, forecast):
    """Return the length of training whose forecasts of the last three years of the training part are the best."""
    inner, origins = parts(training)
    scores = {length: error(forecast(length, inner, [known for known, _ in origins]), origins) for length in lengths}
    return min(scores, key=scores.get)


def error(found, origins):
    """Return the mean absolute error of forecasts."""
    return np.mean([np.abs(forecast - ahead).mean() for forecast, (_, ahead) in zip(found, origins, strict=True)])


def by_darts(training, known, folder):
    """Forecast with darts, after the number of epochs that is best in validation."""
    return darts(best((1, 10, 30, 100), training, darts), training, known)


def darts(epochs, training, known):
    """Forecast logarithms with darts."""
    from darts import TimeSeries
    from darts.models import BlockRNNModel

    from rru.integrations.darts import RRUBlockModule

    def logs(series):
        return TimeSeries.from_times_and_values(series.index.to_timestamp(), np.log(series.to_numpy(np.float32)))

    model = BlockRNNModel(
        36,
        HORIZON,
        model=RRUBlockModule,
        hidden_dim=16,
        dropout=0.3,
        n_epochs=epochs,
        random_state=0,
        pl_trainer_kwargs=QUIET,
    )
    model.fit(logs(training))
    return [np.exp(model.predict(HORIZON, series=logs(each)).values()[:, 0]) for each in known]


def by_neuralforecast(training, known, folder):
    """Forecast with neuralforecast, after the number of steps that is best in validation."""
    return neuralforecast(best((1, 10, 30, 100, 300), training, neuralforecast), training, known)


def neuralforecast(steps, training, known):
    """Forecast logarithms with neuralforecast."""
    from neuralforecast import NeuralForecast

    from rru.integrations.neuralforecast import RRU

    model = RRU(
        h=HORIZON, input_size=36, hidden_size=16, dropout=0.3, max_steps=steps, season=SEASON, accelerator="cpu"
    )

    def frame(series):
        times = series.index.to_timestamp(how="end").normalize()
        return pd.DataFrame({"unique_id": "series", "ds": times, "y": np.log(series.to_numpy(np.float64))})

    forecaster = NeuralForecast(models=[model], freq="ME")
    forecaster.fit(frame(training))
    return [np.exp(forecaster.predict(df=frame(each))["RRU"].to_numpy()) for each in known]


def by_season(training, known, folder):
    """Repeat the last season."""
    return [each.to_numpy()[-SEASON:][:HORIZON] for each in known]


def mase(name, way):
    """Return the MASE of a series."""
    training, origins = parts(SERIES[name]())
    with tempfile.TemporaryDirectory() as folder:
        found = FORECASTS[way](training, [known for known, _ in origins], Path(folder))
    values = training.to_numpy()
    naive = np.abs(values[SEASON:] - values[:-SEASON]).mean()
    return float(error(found, origins) / naive)


def sequences(name, split):
    """Return the sequences (n, steps, channels) and the labels of a set."""
    values, labels = CLASSES[name](split=split, return_type="numpy3D")
    return values.transpose(0, 2, 1), labels


def long_table(values, labels):
    """Return sequences (n, steps, channels) as columns with a row for each step."""
    count, steps, channels = values.shape
    columns = {"id": np.repeat(np.arange(count), steps), "step": np.tile(np.arange(steps), count)}
    columns |= {f"x{channel}": values[..., channel].ravel() for channel in range(channels)}
    return {**columns, "kind": np.repeat(labels, steps)}


def accuracy(name, way):
    """Return the accuracy on the test part of a set, in per cent."""
    training, test = sequences(name, "train"), sequences(name, "test")
    if way == "sklearn":
        from rru.integrations.sklearn import RRUClassifier

        return 100 * RRUClassifier(random_state=0).fit(*training).score(*test)
    if way == "sktime":
        from rru.integrations.sktime import RRUSeriesClassifier

        classifier = RRUSeriesClassifier(random_state=0).fit(training[0].transpose(0, 2, 1), training[1])
        return 100 * classifier.score(test[0].transpose(0, 2, 1), test[1])
    with tempfile.TemporaryDirectory() as folder:
        reading = {"label": "kind", "sequence": "id", "time": "step"}
        if way == "fit":
            options = {"test": long_table(*test), "folder": Path(folder) / "run", "progress": False}
            return rru.fit(long_table(*training), **reading, **options).result.test["accuracy"]
        for split, part in (("train", training), ("test", test)):
            pd.DataFrame(long_table(*part)).to_csv(Path(folder) / f"{split}.csv", index=False)
        options = [word for key, value in reading.items() for word in (f"--{key}", value)]
        command = [
            sys.executable,
            "-m",
            "rru",
            "train",
            f"{folder}/train.csv",
            "--test",
            f"{folder}/test.csv",
            *options,
        ]
        subprocess.run([*command, "--runs", f"{folder}/runs"], check=True, capture_output=True)
        (result,) = Path(folder).glob("runs/train/rru/*/result.json")
        return json.loads(result.read_text())["test"]["accuracy"]


FORECASTS = {
    "command": by_command,
    "fit": by_fit,
    "sktime": by_sktime,
    "darts": by_darts,
    "neuralforecast": by_neuralforecast,
    "seasonal": by_season,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["series", "classes"])
    parser.add_argument("name", choices=[*SERIES, *CLASSES])
    parser.add_argument("way", choices=[*FORECASTS, "sklearn"])
    options = parser.parse_args()
    with contextlib.redirect_stdout(io.StringIO()):
        score = (mase if options.what == "series" else accuracy)(options.name, options.way)
    seconds = round(sum(os.times()[:4]), 1)  # of commands too
    print(json.dumps({"name": options.name, "way": options.way, "score": round(score, 3), "seconds": seconds}))
