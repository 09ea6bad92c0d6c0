"""Series for forecasting, from a table: their splits, season and scaling."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.own.columns import Layout, find_layout
from rru.data.own.data_json import SeriesFacts
from rru.data.own.detect import is_table
from rru.data.own.formats import Candidate, Format, Options
from rru.data.own.resampling import RegularSeries, read_series
from rru.data.own.scaling import (
    AVERAGE,
    BASES,
    GROWTH,
    Scaling,
    Values,
    base_errors,
    detected_season,
    grows_with_level,
    transformed,
)
from rru.data.own.splits import slashed
from rru.data.own.table import listed, read_table
from rru.data.sets import SPLITS, Series
from rru.data.spelling import option

if TYPE_CHECKING:
    from rru.data.own import OwnData

MIN_TRAINING = 4  # steps of the training part before its last horizon
MAX_SEASON = 400  # steps, where it is not known from the frequency


class SplitSeries(NamedTuple):
    """A series, and where its validation and test parts begin."""

    series: RegularSeries
    valid: int
    test: int

    @property
    def training(self) -> Values:
        """The values (T,) of the training part."""
        return self.series.values[: self.valid]


def prepare(own: "OwnData") -> Prepared:
    """Read the series, split them by position, and find season and scaling from the training parts."""
    horizon = int(own.options["horizon"])
    tables = {split: read_table(path) for split, path in own.places.items()}
    layout = find_layout(tables["train"], own.options)
    joined, notes = _joined(own, {split: read_series(table, layout) for split, table in tables.items()})
    splits = [each for each in joined if np.ptp(each.training[each.series.observed[: each.valid]])]
    if not splits:
        raise DataError(own.path, f"column {layout.target!r} does not change in its training part: nothing to forecast")
    if constant := len(joined) - len(splits):
        notes.append(f"{constant:,} series do not change in their training part and are left out")
    training, all_series = [each.training for each in splits], [each.series for each in splits]
    season, why = _season(layout, training, own.options.get("season"))
    log = bool(np.mean([grows_with_level(values, season) for values in training]) > 0.5)
    base = _best_base(training, season, horizon, log=log)
    layout = layout.scaled([each.series.inputs[: each.valid] for each in splits])
    parts = [(each.valid, each.test - each.valid, len(each.series.values) - each.test) for each in splits]
    steps = [int(count) for count in np.sum(parts, axis=0)]
    facts = SeriesFacts(
        layout=layout,
        horizon=horizon,
        season=season,
        base=base,
        series={each.series.name: Scaling.of(each.training, season, horizon, base, log=log) for each in splits},
        statistics={
            "series": len(splits),
            "steps": steps,
            "horizon": horizon,
            "season": season,
            "inputs": layout.size,
        },
        starts=tuple(str(each.start) for each in all_series if each.start is not None),
        summary=f"{_summary(layout, all_series)}, {why}; forecasts {horizon}; "
        f"train / valid / test {slashed(steps)} steps",
        notes=(*notes, *_notes(layout, all_series, tables["train"].names, log)),
    )
    arrays = {
        "values": np.concatenate([series.values for series in all_series]),
        "observed": np.concatenate([series.observed for series in all_series]),
        "inputs": np.concatenate([layout.standardized(series.inputs[: len(series.values)]) for series in all_series]),
        "lengths": np.array([len(series.values) for series in all_series], np.int64),
        "splits": np.array([(each.valid, each.test) for each in splits], np.int64),
    }
    return Prepared(arrays, facts.fields())


def from_prepared(ready: Prepared) -> Series:
    """Build the data set from prepared arrays."""
    facts = SeriesFacts.of(ready.about)
    return Series(**{name: np.asarray(array) for name, array in ready.arrays.items()}, facts=facts)


def _joined(own: "OwnData", parts: Mapping[str, Mapping[str, RegularSeries]]) -> tuple[list[SplitSeries], list[str]]:
    """Return every series with where its parts begin: where the user's files end, else the last tenths; and notes."""
    joined, notes, horizon = list[SplitSeries](), list[str](), int(own.options["horizon"])
    if "valid" in parts and "test" not in parts:
        raise DataError(own.places["valid"], f"of series needs {option('test')} too: the test comes after it in time")
    for name, series in parts["train"].items():
        held = max(len(series.values) // 10, horizon)
        if own.missing and held > len(series.values) // 10:
            notes.append(f"validation and test have {held:,} steps each, a horizon, where a tenth would be less")
        lengths = {"train": len(series.values) - held * len(own.missing)} | dict.fromkeys(own.missing, held)
        for split in SPLITS[1:]:
            if split in parts:
                if name not in parts[split]:
                    raise DataError(own.places[split], f"has no series {name!r}, which {own.path} has")
                before = len(series.values)
                series = series.followed_by(parts[split][name], own.places[split])
                lengths[split] = len(series.values) - before
        if lengths["train"] < horizon + MIN_TRAINING:
            most = (len(series.values) - MIN_TRAINING) // 3
            advice = f"horizon must be at most {most}" if most > 0 else "it must have more steps"
            steps = f"{f'series {name!r} ' if name else ''}has {len(series.values):,} steps"
            few = f"{steps}, too few to train, validate and test with a horizon of {horizon}"
            raise DataError(own.path, f"{few}; {advice}")
        joined.append(SplitSeries(series, lengths["train"], lengths["train"] + lengths["valid"]))
    return joined, list(dict.fromkeys(notes))


def _season(layout: Layout, training: list[Values], given: int | None) -> tuple[int, str]:
    """Return the season, and where it is from."""
    longest = max(map(len, training))
    if given is not None:
        if given >= longest:
            raise ValueError(f"season must be less than the {longest:,} steps of the training part, got {given}")
        return given, f"season {given} as given"
    usual = 1 if layout.frequency is None else layout.frequency.season
    if usual > 1 and 2 * usual <= longest:
        return usual, f"season {usual} by the frequency"
    season = int(np.median([detected_season(values, MAX_SEASON) for values in training]))
    return (season, f"season {season} found by autocorrelation") if season > 1 else (1, "no season")


def _best_base(training: list[Values], season: int, horizon: int, *, log: bool) -> str:
    """Return the simple forecast with the least error, on average over the series, relative to the others."""
    errors: dict[str, float] = {}
    bases = [base for base in BASES if season > 1 or base not in (AVERAGE, GROWTH)]
    for values in training:
        scaled = transformed(values, values.min() / 10 if log and values.min() > 0 else None)
        base_error = {base: base_errors(base, scaled, season, horizon) for base in bases}
        best = min(base_error.values()) or 1.0
        for base in bases:
            errors[base] = errors.get(base, 0.0) + base_error[base] / best
    return min(errors, key=lambda base: errors[base])


def _summary(layout: Layout, all_series: list[RegularSeries]) -> str:
    """Describe the target, inputs, steps and frequency."""
    steps = sum(len(series.values) for series in all_series)
    missing = steps - sum(int(series.observed.sum()) for series in all_series)
    rate = "steps without times" if layout.frequency is None else str(layout.frequency)
    many = f"{len(all_series):,} series of {layout.target!r} by {layout.id!r}" if layout.id else repr(layout.target)
    gaps = f"{missing:,} of them missing, " if missing else ""
    inputs = f", with {', '.join(layout.input_names)}" if layout.input_names else ""
    return f"{many}{inputs}; {steps:,} steps, {gaps}{rate}"


def _notes(layout: Layout, all_series: list[RegularSeries], names: tuple[str, ...], log: bool) -> list[str]:
    notes = list(dict.fromkeys(note for series in all_series for note in series.notes))
    if log:
        notes.append(f"{layout.target!r} varies more where it is higher: the model sees its logarithm")
    used = {layout.target, layout.time, layout.id, *layout.past, *layout.known}
    if unused := [name for name in names if name not in used]:
        advice = "name them as columns, or as known if they are known in advance"  # notes are kept for both ways of use
        notes.append(f"columns not used: {listed(unused, 8)} ({advice})")
    return notes


def _recognise(candidate: Candidate) -> bool:
    return is_table(candidate) and "target" in candidate.options


def _complete(path: Path, options: Options) -> Options:
    if "horizon" not in options:
        raise ValueError(f"{option('horizon')} must be given with {option('target')}: number of steps to forecast")
    for name in ("horizon", "season"):
        if options.get(name, 1) < 1:
            raise ValueError(f"{name} must be at least 1, got {options[name]}")
    return {name: value for name, value in options.items() if name != "calendar" or value}


FORMAT = Format(
    "series",
    "series to forecast",
    from_prepared,
    prepare,
    SeriesFacts,
    options=("target", "horizon", "id", "time", "columns", "known", "calendar", "frequency", "season"),
    complete=_complete,
    recognise=_recognise,
)
