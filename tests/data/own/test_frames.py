"""Tables in memory are read as files with the same content are."""

import datetime
from decimal import Decimal

import numpy as np
import pytest

from rru.data import DataError, from_csv, from_frame
from rru.data.own.frames import saved, table_from
from rru.data.own.table import read_table
from tests import own_files

DAYS = np.arange("2026-01-01", "2026-03-01", dtype="datetime64[D]")


class Column:
    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return np.asarray(self.values)


class Frame:
    """What DataFrames of pandas and polars have in common."""

    def __init__(self, columns):
        self._columns = columns

    @property
    def columns(self):
        return list(self._columns)

    def __getitem__(self, name):
        return Column(self._columns[name])


def mixed():
    """Columns of every kind, some with missing cells, by name."""
    return {
        "day": DAYS[:4],
        "date": [datetime.date(2026, 1, day) for day in (1, 2, 3, 4)],
        "load": [1.5, float("nan"), 2.0, 1e-7],
        "count": np.array([3, 1, 2, 2]),
        "price": [Decimal("1.10"), None, Decimal("2"), Decimal("3")],
        "label": ["a", None, " b ", 'say "c", d'],
        "on": np.array([True, False, True, True]),
        "stars": [5.0, 1.0, 5.0, 4.5],
    }


def test_columns_are_numbers_times_or_texts():
    table = table_from(Frame(mixed()))
    kinds = {column.name: column.kind for column in table}
    numbers = dict.fromkeys(("load", "count", "price", "stars"), "number")
    assert kinds == {"day": "time", "date": "time", **numbers, "label": "category", "on": "category"}
    assert table["label"].texts() == ["a", "", "b", 'say "c", d']
    assert table["stars"].texts() == ["5", "1", "5", "4.5"]
    assert table["on"].texts() == ["true", "false", "true", "true"]
    assert np.array_equal(table["price"].numbers(), [1.1, np.nan, 2, 3], equal_nan=True)
    assert (table["date"].times() == DAYS[:4]).all()


def test_a_saved_table_reads_back_as_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path))
    table, again = table_from(mixed()), read_table(saved(mixed()))
    assert again.names == table.names
    for name in table.names:
        assert again[name].kind == table[name].kind
        assert again[name].texts() == table[name].texts() or again[name].kind == "time"
    for name in ("load", "count", "price", "stars"):
        assert np.array_equal(again[name].numbers(), table[name].numbers(), equal_nan=True)
    assert (again["day"].times() == table["day"].times()).all()
    assert saved(mixed()) == saved(Frame(mixed()))
    assert saved(mixed()) != saved({**mixed(), "count": [1, 1, 1, 2]})


def test_own_data_of_a_table_is_that_of_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    file = read_table(own_files.gestures(tmp_path / "moves.csv"))
    frame = {column.name: column.numbers() if column.kind == "number" else column.texts() for column in file}
    options = {"label": "kind", "sequence": "id", "time": "t"}
    mine, theirs = from_frame(frame, **options), from_csv(file.path, **options)
    assert mine.statistics == theirs.statistics
    assert (mine.load().train.values == theirs.load().train.values).all()
    held_out = from_frame(frame, **options, valid=frame, test=frame)
    assert held_out.statistics["sequences"] == [40, 40, 40]


def test_wrong_tables_are_named():
    with pytest.raises(
        DataError, match=r"DataFrame: must have from 1 to 4,096 columns, all equally long; got 2 columns"
    ):
        table_from({"a": [1, 2], "b": [1, 2, 3]})
    with pytest.raises(DataError, match=r"DataFrame: must have from 2 to .* rows, got 1"):
        table_from({"a": [1]})
    with pytest.raises(DataError, match="column 'a' must have numbers, times or texts, has a list"):
        table_from({"a": np.array([[1], [2, 3]], object)})
    with pytest.raises(DataError, match="column 'a' must have numbers, times or texts, has complex128"):
        table_from({"a": [1j, 2j]})
    with pytest.raises(DataError, match=r"DataFrame, row 2: column 'a' must have numbers, got 'x'"):
        table_from({"a": ["1", "x", "2"]})["a"].numbers()


def test_a_frame_of_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(mixed())
    frame["count"] = frame["count"].astype("Int64").mask(frame["count"] == 1)
    frame["zoned"] = pandas.to_datetime(frame["day"]).dt.tz_localize("Europe/Berlin")
    frame["kind"] = pandas.Categorical(["x", "y", "x", None])
    table = table_from(frame)
    assert np.array_equal(table["count"].numbers(), [3, np.nan, 2, 2], equal_nan=True)
    assert table["label"].texts() == ["a", "", "b", 'say "c", d']
    assert table["kind"].texts() == ["x", "y", "x", ""]
    assert table["zoned"].times()[0] == np.datetime64("2025-12-31T23:00")
    assert (table["day"].times() == DAYS[:4]).all()
    assert table_from(frame.set_index("day")).names[0] == "day"
    assert table_from(frame.set_index(pandas.DatetimeIndex(DAYS[:4])), index="when").names[0] == "when"
    assert table_from(frame[frame["stars"] > 2]).names == table.names


def test_a_frame_of_polars():
    polars = pytest.importorskip("polars")
    table = table_from(polars.DataFrame(mixed(), strict=False))
    assert table["label"].texts() == ["a", "", "b", 'say "c", d']
    assert np.array_equal(table["price"].numbers(), [1.1, np.nan, 2, 3], equal_nan=True)
    assert (table["date"].times() == DAYS[:4]).all()
    assert table["on"].texts() == ["true", "false", "true", "true"]
