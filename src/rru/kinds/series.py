"""Series, to forecast, from users' tables."""

from rru.data import SPLITS
from rru.data.own import series
from rru.data.own.data_json import Statistics
from rru.kinds import sizes
from rru.kinds.kind import CODE, Kind
from rru.kinds.sizes import Tables
from rru.tasks import SeriesTask, TaskSettings

MAX_WINDOWS = 8_000  # in an epoch
FORECAST = """from rru import inference

trained = inference.load(".")
for series in inference.forecast(trained, "new.csv"):
    print(series.name, series.quantiles)  # (horizon, 5)
"""
INPUTS = (
    "(context + horizon, batch, features) float32, windows as `rru.tasks.Windows` makes them; logits are the "
    "2.5, 10, 50, 90 and 97.5 % quantiles of each step, which `Windows.forecasts` turns into the units of the file. "
    "The steps of the context have no meaning"
)


def _auto(statistics: Statistics) -> Tables:
    steps, horizon, inputs = statistics["steps"][0], statistics["horizon"], statistics["inputs"]
    longest, windows = max(steps // statistics["series"] - horizon, 1), min(steps, MAX_WINDOWS)
    task = {
        "context": min(sizes.between(2 * max(statistics["season"], horizon), 16, 400), longest),
        "batch_size": sizes.power_of_two(steps / 8, 8, sizes.MAX_BATCH // 2),
        **({"limit": MAX_WINDOWS} if steps > MAX_WINDOWS else {}),
    }
    budget = max(sizes.between(10 * steps, 4_000, 100_000) + 50 * inputs, sizes.room(inputs, 16))
    dropout = sizes.by_size(steps, (5_000, 0.5), (50_000, 0.3), (0, 0.1))
    schedule = {"epochs": sizes.between(60_000 // windows, 20, 60), "patience": 12}
    return {**sizes.tables(windows, task, {"budget": sizes.rounded(budget), "dropout": dropout}), "schedule": schedule}


def _steps(statistics: Statistics, split: int, settings: TaskSettings) -> float | None:
    """Count the steps of all windows: one ends at each step."""
    if "steps" not in statistics:
        return None
    windows = settings.limited(statistics["steps"][split], SPLITS[split])
    return float(windows * (settings.context + statistics["horizon"]))


SERIES = Kind(
    format=series.FORMAT,
    task=SeriesTask,
    noun="series",
    commands=("forecast",),
    steps=_steps,
    inputs=INPUTS,
    code={**CODE, "safetensors": FORECAST},
    auto=_auto,
    cells=sizes.SMALL_CELLS,
    figure="forecasts",
)
