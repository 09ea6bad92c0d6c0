"""Tables from CSV, TSV and Parquet files, and what is said about files that are none."""

import os
import re
import sys

import numpy as np
import pytest

from rru.data import DataError, from_frame
from rru.data.own import table
from rru.data.own.column import Column
from rru.data.own.frames import table_from
from rru.data.own.table import read_table


def read(tmp_path, text, name="some.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_table(path)


def refused(tmp_path, text):
    with pytest.raises(DataError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert "some.csv" in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_found(tmp_path, delimiter):
    some = read(tmp_path, delimiter.join("ab") + "\n" + delimiter.join("12") + "\n" + delimiter.join("34") + "\n")
    assert some.names == ("a", "b")
    assert some["b"].numbers().tolist() == [2, 4]
    assert len(some) == 2


def test_types_of_columns(tmp_path):
    lines = [
        f"2026-01-{day:02d},{day / 2},{'wet' if day % 2 else 'dry'},word {day} of {day * 7},NA" for day in range(1, 31)
    ]
    some = read(tmp_path, "day,load,sky,note,gone\n" + "\n".join(lines))
    assert [column.kind for column in some] == ["time", "number", "category", "text", "empty"]
    assert some["day"].times()[1] == np.datetime64("2026-01-02")


def test_missing_values_are_nan(tmp_path):
    numbers = read(tmp_path, "a,b\n1,NA\n2,\n3,nan\n4,5e-1\n")["b"].numbers()
    assert np.isnan(numbers[:3]).all()
    assert numbers[3] == 0.5


def test_quoted_fields_may_hold_delimiters_quotes_and_line_ends(tmp_path):
    some = read(tmp_path, 'text,label\n"one, ""two""\nthree",good\nfour,bad\n')
    assert some["text"].texts() == ['one, "two"\nthree', "four"]
    assert some["label"].lines.tolist() == [3, 4]


def test_spaces_byte_order_mark_and_empty_lines_do_not_matter(tmp_path):
    some = read(tmp_path, b"\xef\xbb\xbfa , b\r\n 1, 2 \r\n\r\n3,4\r\n")
    assert some.names == ("a", "b")
    assert some["b"].numbers().tolist() == [2, 4]


def test_semicolons_allow_decimal_commas(tmp_path):
    assert read(tmp_path, "a;b\n1,5;x\n-2,25;y\n")["a"].numbers().tolist() == [1.5, -2.25]


def test_one_column_needs_no_delimiter(tmp_path):
    some = read(tmp_path, "load\n1\n2\n")
    assert some.names == ("load",)
    assert some["load"].numbers().tolist() == [1, 2]


def test_an_empty_line_of_one_column_is_a_missing_value(tmp_path):
    assert np.isnan(read(tmp_path, "load\n1\n\n3\n")["load"].numbers()).tolist() == [False, True, False]


def test_columns_without_a_name_are_numbered(tmp_path):
    assert read(tmp_path, ",load\n0,1\n1,2\n").names == ("column 1", "load")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("\n \n", "has only empty lines"),
        (b"a,b\n1,\0\n", "binary"),
        ("a,b\n1,2\n".encode("utf-16"), "UTF-16; save it as UTF-8"),
        (b"a,b\n\xff,2\n3,4\n", "line 2: is not UTF-8"),
        ("a,b\n", "at least two rows"),
        ("a,b\n1,2\n", "at least two rows below its column names, got 1"),
        ("1,2\n3,4\n5,6\n", "must begin with the names of the columns, got numbers: 1, 2"),
        ("a,b,a\n1,2,3\n4,5,6\n", "two columns named 'a'"),
        ("a,b,c\n1,2,3\n4;5;6\n7,8,9\n", "line 3: is delimited by semicolons, the first line by commas"),
        ("a,b,c\n1,2,3\n4,5\n", "line 3: has 2 fields, but there are 3 column names, delimited by commas"),
        ('a,b\n1,"2\n3,4\n', "a quoted field does not end"),
    ],
)
def test_what_is_no_table_is_refused_in_one_line(tmp_path, content, said):
    assert said in refused(tmp_path, content)


def test_a_column_that_is_not_there_is_named_with_a_guess(tmp_path):
    some = read(tmp_path, "date,load\n1,2\n3,4\n")
    with pytest.raises(DataError, match=r"some.csv: has no column 'laod'; did you mean 'load'\?"):
        some["laod"]
    with pytest.raises(DataError, match="has no column 'xyz'; its columns are date, load"):
        some["xyz"]


def test_a_cell_that_is_no_number_or_time_is_named_with_its_line(tmp_path):
    some = read(tmp_path, "date,load\n2026-01-01,1\n2026-01-02,high\n2026-13-03,2\n")
    with pytest.raises(DataError, match="line 3: column 'load' must have numbers, got 'high'"):
        some["load"].numbers()
    with pytest.raises(DataError, match=r"line 4: column 'date' must have times such as .*, got '2026-13-03'"):
        some["date"].times()


@pytest.mark.parametrize("value", ["inf", "-inf", "Infinity", "-INFINITY", "1e999", "1e31"])
@pytest.mark.parametrize("others", ["2.5", "NA"])
def test_a_number_that_float32_does_not_hold_is_an_error_that_names_it(tmp_path, value, others):
    some = read(tmp_path, f"day,load\n1,{others}\n2,{value}\n")
    right = r"numbers from -1e\+30 to 1e\+30, or empty cells where they are missing"
    with pytest.raises(DataError, match=rf"some\.csv, line 3: column 'load' must have {right}; got '{value}'"):
        some["load"].numbers()


def test_an_infinite_number_of_parquet_or_a_frame_is_an_error_too(tmp_path):
    cells = np.array([1.0, np.nan, -np.inf])
    column = Column(tmp_path / "some.parquet", "load", cells, np.arange(1, 4))
    assert column.missing.tolist() == [False, True, False]
    with pytest.raises(DataError, match=r"line 3: column 'load' must have numbers .*; got '-inf'"):
        column.numbers()
    with pytest.raises(DataError, match=r"the DataFrame, row 3: column 'load' must have numbers .*; got '-inf'"):
        table_from({"load": cells})["load"].numbers()
    own = from_frame({"load": [*range(40), np.inf]}, target="load", horizon=2)
    with pytest.raises(DataError, match=r"the DataFrame, row 41: column 'load' must have numbers .*; got 'inf'"):
        own.load()


def test_groups_are_the_different_texts(tmp_path):
    some = read(tmp_path, "a,b\nx,1\nNA,2\ny,1\nx,2\n")
    texts, numbers = some["a"].groups
    assert [texts[number] for number in numbers] == some["a"].texts() == ["x", "", "y", "x"]
    texts, numbers = Column(tmp_path, "c", np.array([3.0, np.nan, 1, 3]), np.arange(4)).groups
    assert [texts[number] for number in numbers] == ["3", "", "1", "3"]


ROWS = [f" {number}, name {number % 7} ,{'' if number % 5 else number / 4}" for number in range(3000)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "change", [{}, {1700: '"1700",x,1'}, {1700: ""}, {1700: ",,"}, {1700: "ä,ß,ﬁ"}, {2999: " , , "}]
)
def test_lines_read_in_blocks_give_what_rows_give(tmp_path, monkeypatch, end, change):
    text = "a,b,c" + end + end.join(change.get(number, row) for number, row in enumerate(ROWS)) + end
    monkeypatch.setattr(table, "PLAIN_LINE", 0)
    by_row = read(tmp_path, text)
    monkeypatch.setattr(table, "PLAIN_LINE", 1 << 16)
    for size in (1, 5000, 1 << 20):
        monkeypatch.setattr(table, "BLOCK", size)
        in_blocks = read(tmp_path, text)
        for ours, theirs in zip(in_blocks, by_row, strict=True):
            assert ours.cells.tolist() == theirs.cells.tolist()
            assert ours.lines.tolist() == theirs.lines.tolist()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1,2", "line 1702: has 2 fields"),
        ('1,"2,3', "a quoted field does not end"),
        ("1,\0,3", "line 1702: is a binary file"),
        ("1,2,3\r4,5,6", "line 170[23]: cannot be read as CSV"),
        (f"1,2,{'3' * 200_000}", "line 1702: cannot be read as CSV: field larger than field limit"),
    ],
)
def test_what_is_wrong_after_the_first_block_is_named_with_its_line(tmp_path, monkeypatch, line, said):
    monkeypatch.setattr(table, "BLOCK", 5000)
    assert re.search(said, refused(tmp_path, "\n".join(["a,b,c", *ROWS[:1700], line, *ROWS[1700:]])))


def test_sizes_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "LINE_LIMIT", 1000)
    monkeypatch.setattr(table, "MAX_COLUMNS", 10)
    monkeypatch.setattr(table, "MAX_CELLS", 100)
    assert "has more than 1000 bytes in a line" in refused(tmp_path, "a,b\n1," + "2" * 2000)
    assert "at most 10 columns, got 20" in refused(tmp_path, ",".join("abcdefghijklmnopqrst") + "\n")
    assert "has more than 100 cells" in refused(tmp_path, "a,b\n" + "1,2\n" * 60)
    monkeypatch.setattr(table, "FILE_LIMIT", 10)
    assert "more than the limit of 10" in refused(tmp_path, "a,b\n1,2\n3,4\n")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_and_folders_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="must be a file"):
        read_table(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="must be a file"):
        read_table(tmp_path)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "needs pyarrow" in refused(tmp_path, b"PAR1....PAR1")


def test_parquet_gives_the_same_table_as_csv(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    days = np.arange("2026-01-01", "2026-01-04", dtype="datetime64[D]")
    columns = {"day": pa.array(days), "load": pa.array([1, None, 3]), "sky": pa.array(["wet", "dry", None])}
    parquet.write_table(pa.table(columns), tmp_path / "some.parquet")
    found = read_table(tmp_path / "some.parquet")
    same = read(tmp_path, "day,load,sky\n2026-01-01,1,wet\n2026-01-02,,dry\n2026-01-03,3,\n")
    assert [column.kind for column in found] == [column.kind for column in same]
    assert (found["day"].times() == same["day"].times()).all()
    np.testing.assert_array_equal(found["load"].numbers(), same["load"].numbers())
    assert found["sky"].texts() == same["sky"].texts()


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("1,102.50", "a thousands separator: remove it"),
        ("1,102", "a thousands separator: remove it"),
        ("$98.0", "a currency sign: remove it"),
        ("98.0 €", "a currency sign: remove it"),
        ("$1,102.50", "a currency sign and a thousands separator: remove them"),
        ("-£1 102", "a currency sign and a thousands separator: remove them"),
        ("12 %", "a percent sign: remove it"),
        ("98,5", "a decimal comma: write a point, or separate columns by semicolons"),
    ],
)
def test_what_keeps_a_cell_from_being_a_number_is_said(tmp_path, cell, said):
    path = tmp_path / "some.csv"
    path.write_text(f'day,load\n2026-01-01,5\n2026-01-02,"{cell}"\n')
    with pytest.raises(DataError) as caught:
        read_table(path)["load"].numbers()
    assert str(caught.value).endswith(f"line 3: column 'load' must have numbers, got {cell!r}, which has {said}")


@pytest.mark.parametrize("cell", ["many", "$", "a$5", "1,2,3 b", "5.1.2026"])
def test_what_is_no_number_at_all_has_no_such_hint(tmp_path, cell):
    path = tmp_path / "some.csv"
    path.write_text(f'day,load\n2026-01-01,5\n2026-01-02,"{cell}"\n')
    with pytest.raises(DataError, match=f"got '{re.escape(cell)}'$"):
        read_table(path)["load"].numbers()


def test_a_table_without_names_is_asked_for_them(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("2026-01-01,57.74\n2026-01-02,58\n2026-01-03,59\n")
    with pytest.raises(DataError, match=r"2026-01-01, 57.74; does it lack the line with the names of the columns\?"):
        read_table(path)["load"]
    path.write_text("day,57.74\n2026-01-02,58\n2026-01-03,59\n")
    with pytest.raises(DataError, match=r"its columns are day, 57.74$"):
        read_table(path)["load"]
