"""Forecast a column of your own table, compare with two simple forecasts; write forecast.csv and forecast.png.

python examples/own_series.py energy.csv --target load --horizon 24
"""

import argparse

import rru

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("path", help="a CSV, TSV or Parquet file")
parser.add_argument("--target", required=True, help="the column to forecast")
parser.add_argument("--horizon", required=True, type=int, help="how many steps to forecast")
parser.add_argument("--id", help="the column that identifies each series")
parser.add_argument("--preset", default="auto", choices=["auto", "smoke"])
options = parser.parse_args()

series = rru.data.from_csv(options.path, target=options.target, horizon=options.horizon, id=options.id)
print(series.summary)
trained = rru.fit(series, cell="rru", preset=options.preset)
print(rru.tasks.verdict(trained.result.test))
forecasts = trained.forecast()
for step, values in enumerate(forecasts[0].quantiles, 1):
    print(f"{step:3}: {values[2]:.4g}, with 95 % from {values[0]:.4g} to {values[4]:.4g}")
forecasts.save("forecast.csv", force=True)
