"""Series for forecasting, from a table: their splits, season and scaling."""

from collections.abc import Mapping, Sequence
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
from rru.data.own.scaling import Scaling, Values, pooled
from rru.data.own.seasons import find_seasons
from rru.data.own.splits import slashed
from rru.data.own.table import listed, read_table
from rru.data.own.times import shown
from rru.data.sets import SPLITS, Series
from rru.data.spelling import option

if TYPE_CHECKING:
    from rru.data.own import OwnData

MIN_TRAINING = 4  # steps of the training part before its last horizon


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
    if short := sum(each.valid == len(each.series.values) for each in splits):
        if short == len(splits):
            raise _too_short(own.path, [each.series for each in splits], horizon)
        notes.append(f"{short:,} series are too short to be held out: they are trained on, not scored")
    (season, *longer), why = find_seasons(
        layout.frequency, [each.training for each in splits], own.options.get("season")
    )
    splits = [each._replace(series=each.series.filled(season)) for each in splits]
    training, all_series = [each.training for each in splits], [each.series for each in splits]
    scalings = pooled([Scaling.of(each.training, season, each.series.observed[: each.valid]) for each in splits])
    layout = layout.scaled([each.series.inputs[: each.valid] for each in splits])
    parts = [(each.valid, each.test - each.valid, len(each.series.values) - each.test) for each in splits]
    steps = [int(count) for count in np.sum(parts, axis=0)]
    facts = SeriesFacts(
        layout=layout,
        horizon=horizon,
        season=season,
        longer_seasons=tuple(longer),
        series={series.name: scaling for series, scaling in zip(all_series, scalings, strict=True)},
        statistics={
            "series": len(splits),
            "steps": steps,
            "longest": max(map(len, training)),
            "horizon": horizon,
            "season": season,
            "longest_season": max([season, *longer]),
            "inputs": layout.size,
        },
        starts=tuple(str(each.start) for each in all_series if each.start is not None),
        splits=tuple((each.valid, each.test, len(each.series.values)) for each in splits),
        summary=f"{_summary(layout, all_series)}, {why}; forecasts {horizon}; "
        f"train / valid / test {slashed(steps)} steps",
        notes=(*notes, *_notes(layout, all_series, tables["train"].names, scalings)),
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
        if lengths["train"] < horizon + MIN_TRAINING and own.missing:
            lengths = {"train": len(series.values), "valid": 0, "test": 0}
        joined.append(SplitSeries(series, lengths["train"], lengths["train"] + lengths["valid"]))
    return joined, list(dict.fromkeys(notes))


def _too_short(path: Path, all_series: Sequence[RegularSeries], horizon: int) -> DataError:
    """Return the error if even the longest series has too few steps."""
    longest = max(all_series, key=lambda each: len(each.values))
    most = (len(longest.values) - MIN_TRAINING) // 3
    advice = f"horizon must be at most {most}" if most > 0 else "it must have more steps"
    steps = f"{f'series {longest.name!r} ' if longest.name else ''}has {len(longest.values):,} steps"
    return DataError(path, f"{steps}, too few to train, validate and test with a horizon of {horizon}; {advice}")


def _summary(layout: Layout, all_series: list[RegularSeries]) -> str:
    """Describe the target, inputs, steps and frequency."""
    steps = sum(len(series.values) for series in all_series)
    missing = steps - sum(int(series.observed.sum()) for series in all_series)
    many = f"{len(all_series):,} series of {layout.target!r} by {layout.id!r}" if layout.id else repr(layout.target)
    gaps = f"{missing:,} of them missing, " if missing else ""
    inputs = f", with {', '.join(layout.input_names)}" if layout.input_names else ""
    return f"{many}{inputs}; {steps:,} steps, {gaps}{layout.rate}{_span(all_series)}"


def _span(all_series: list[RegularSeries]) -> str:
    """Return the first and the last time of all series, in words; nothing without times."""
    starts = [each.start for each in all_series if each.start is not None]
    ends = [end[0] for each in all_series if (end := each.times(len(each.values) - 1, len(each.values))) is not None]
    if not starts or not ends:
        return ""
    first, last = shown([min(starts), max(ends)])
    return f" from {first} to {last}"


def _notes(
    layout: Layout, all_series: list[RegularSeries], names: tuple[str, ...], scalings: Sequence[Scaling]
) -> list[str]:
    steps = sum(len(series.values) for series in all_series)
    missing = steps - sum(int(series.observed.sum()) for series in all_series)
    notes = []
    if missing > steps / 2:
        advice = "If not, write dates as 2026-01-31, or give another frequency"
        asked = f"; are they really {layout.rate}{_span(all_series)}? {advice}" if layout.time else ""
        notes.append(f"WARNING: {missing:,} of {steps:,} steps are missing{asked}")
    notes += dict.fromkeys(note for series in all_series for note in series.notes)
    if positive := sum(scaling.floor is not None for scaling in scalings):
        which = "is" if positive == len(scalings) else f"of {positive:,} series is"
        notes.append(
            f"{layout.target!r} {which} positive: the model sees its logarithm, and its forecasts are positive"
        )
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
