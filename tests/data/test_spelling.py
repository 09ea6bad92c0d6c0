"""Messages name options as the user writes them: arguments in Python, `--options` in commands."""

import pytest

from rru.data import DataError, MissingData, data_set, from_csv, from_path
from rru.data.spelling import command_spelling, option
from tests import own_files


def test_an_option_is_an_argument_in_python_and_an_option_in_a_command():
    assert option("target", "COLUMN") == "target=COLUMN"
    assert option("by", "bytes") == "by='bytes'"
    assert option("data_dir") == "data_dir"
    with command_spelling():
        assert option("target", "COLUMN") == "--target COLUMN"
        assert option("data_dir") == "--data-dir"
    assert option("target") == "target"


@pytest.mark.parametrize(
    ("options", "python", "command"),
    [
        ({}, "target=COLUMN, horizon=STEPS to forecast, text=COLUMN, label=COLUMN or", "--target COLUMN --horizon"),
        ({"horizon": 3}, "horizon is not for a table without target", "--horizon is not for a table without --target"),
        ({"target": "x"}, "horizon must be given with target: ", "--horizon must be given with --target: "),
    ],
)
def test_a_table_that_is_unclear(tmp_path, options, python, command):
    path = own_files.gestures(tmp_path / "table.csv")
    for read in (from_csv, from_path):
        with pytest.raises((DataError, ValueError), match=python):
            read(path, **options)
        with pytest.raises((DataError, ValueError), match=command), command_spelling():
            read(path, **options)


def test_a_missing_data_set(tmp_path):
    assert "set the folder with data_dir or" in str(MissingData(data_set("jsb"), tmp_path))
    with command_spelling():
        assert "set the folder with --data-dir or" in str(MissingData(data_set("jsb"), tmp_path))
