"""Makes an `OwnData` of a user's files: `from_text`, `from_midi`, `from_csv`, `from_folder`; `from_path` finds which.

```python
from rru import data

data.from_text("novel.txt", by="words")
data.from_midi("chorales/", grid=1)
data.from_csv("reviews.csv", text="body", label="stars")
data.from_folder("reviews/")  # one sub-folder for each class
```
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rru.data.errors import DataError
from rru.data.own import OwnData, midi, text, texts
from rru.data.own.source import check_place, files_below

Place = Path | str
TABLES = (".csv", ".tsv", ".tab", ".parquet")


def from_text(
    path: Place,
    *,
    by: str = "characters",
    valid: Place | None = None,
    test: Place | None = None,
    vocabulary: int | None = None,
    tokenizer: str | None = None,
) -> OwnData:
    """Read a text, to learn to predict and write it.

    **Arguments:**

    - `path`: a UTF-8 file of any size, or a folder of such files (.txt, .md).
    - `by`: `characters`, `words` or `bytes`.
    - `valid`, `test`: files or folders to validate and test on. Default: the last tenths of the text; of a folder, a
      tenth of its files each.
    - `vocabulary`: for words, the most of them to know; others are unknown. Default: 10,000.
    - `tokenizer`: for words, `punctuation` or `spaces`; see `rru.data.own.text`. Default: chosen by the text.
    """
    if by not in text.BY:
        raise ValueError(f"by must be {', '.join(text.BY[:-1])} or {text.BY[-1]}, got {by!r}")
    options = {"vocabulary": vocabulary, "tokenizer": tokenizer}
    if by == "words" and tokenizer is None:
        check_place(Path(path).expanduser())
        options["tokenizer"] = text.tokenizer_for(Path(path).expanduser())
    return _of_kind(by, path, options, valid, test)


def from_midi(
    path: Place, *, grid: int | None = None, valid: Place | None = None, test: Place | None = None
) -> OwnData:
    """Read MIDI files, to learn to predict and compose such music.

    **Arguments:**

    - `path`: a folder with .mid and .midi files, also in sub-folders and zip archives; or a zip archive.
    - `grid`: steps per quarter note. Default: 4.
    - `valid`, `test`: folders to validate and test on. Default: a tenth of the files each.
    """
    return _of_kind("music", path, {"grid": grid}, valid, test)


def from_csv(
    path: Place,
    *,
    text: str | None = None,
    label: str | None = None,
    sequence: str | None = None,
    time: str | None = None,
    columns: str | None = None,
    vocabulary: int | None = None,
    target: str | None = None,
    horizon: int | None = None,
    id: str | None = None,
    known: str | None = None,
    calendar: bool | None = None,
    frequency: str | None = None,
    season: int | None = None,
    valid: Place | None = None,
    test: Place | None = None,
) -> OwnData:
    """Read a table (CSV, TSV, or Parquet where pyarrow is installed), to learn to forecast or to classify.

    **Arguments:**

    - `path`: the table; its first line has the names of the columns.
    - `valid`, `test`: tables to validate and test on. Default: the last tenths of each series, a tenth of every class.

    To forecast series:

    - `target`: the column to forecast.
    - `horizon`: number of steps to forecast.
    - `time`: the column with times. Default: the first that has times, if there is one.
    - `id`: the column that says which series a row belongs to.
    - `columns`: other columns to learn from, separated by commas, or `all`. Default: none.
    - `known`: input columns whose future values are known in advance, such as prices or holidays.
    - `calendar`: whether to use the hour, the weekday and the time of year as inputs.
    - `frequency`: the time between steps, such as `h`, `30min`, `D`, `W` or `M`; values in between are averaged.
      Default: found from the times.
    - `season`: number of steps after which a pattern repeats. Default: from the frequency, else found in the values.

    To classify texts or sequences:

    - `label`: the column with the class.
    - `text`: the column with texts to classify. Default: classify numbers.
    - `sequence`: the column that says which sequence a row belongs to. Default: each row is a sequence, and its columns
      are its steps.
    - `time`: the column to sort the rows of a sequence by. Default: the order in the table.
    - `columns`: the columns with the numbers of sequences, separated by commas. Default: all with numbers.
    - `vocabulary`: for texts, the most words to know. Default: 10,000.
    """
    series = {"target": target, "horizon": horizon, "id": id, "known": known, "calendar": calendar or None}
    series |= {"frequency": frequency, "season": season}
    if target is not None:
        _refuse(path, "series", label=label, text=text, sequence=sequence, vocabulary=vocabulary)
        return _series(path, series | {"time": time, "columns": columns}, valid, test)
    _refuse(path, "a table without --target", **series)
    if label is None:
        raise _unclear(Path(path).expanduser())
    if text is not None:
        _refuse(path, "texts", sequence=sequence, time=time, columns=columns)
        return _of_kind("texts", path, {"text": text, "label": label, "vocabulary": vocabulary}, valid, test)
    _refuse(path, "sequences of numbers", vocabulary=vocabulary)
    return _of_kind(
        "sequences", path, {"label": label, "sequence": sequence, "time": time, "columns": columns}, valid, test
    )


def _series(path: Place, options: Mapping[str, Any], valid: Place | None, test: Place | None) -> OwnData:
    if options["horizon"] is None:
        raise ValueError("--horizon must be given with --target: number of steps to forecast")
    for name in ("horizon", "season"):
        if options[name] is not None and options[name] < 1:
            raise ValueError(f"{name} must be at least 1, got {options[name]}")
    return _of_kind("series", path, options, valid, test)


def from_folder(path: Place, **options: Any) -> OwnData:
    """Read a folder: of MIDI files, of texts with one sub-folder for each class, or of texts to predict.

    **Arguments:**

    - `path`: the folder.
    - `options`: those of `from_midi` or `from_text`; for texts with classes `vocabulary`, `valid` and `test`.
    """
    path = Path(path).expanduser()
    check_place(path)
    if not path.is_dir():
        raise DataError(path, "must be a folder")
    suffixes = {file.suffix.lower() for file in files_below(path, (*midi.SUFFIXES, *text.SUFFIXES))}
    if suffixes & set(midi.SUFFIXES):
        return _taken(from_midi, path, options, "MIDI files")
    classes = texts.class_folders(path)
    if "by" in options or len(classes) < 2:
        return _taken(from_text, path, options, "a text")
    if set(classes) <= {"train", "valid", "test", "validation"}:
        raise DataError(path, f"has sub-folders {', '.join(classes)}; give {path / 'train'} and --test {path / 'test'}")
    return _taken(_labelled_folder, path, options, "texts with labels")


def _labelled_folder(
    path: Place, *, vocabulary: int | None = None, valid: Place | None = None, test: Place | None = None
) -> OwnData:
    return _of_kind("texts", path, {"vocabulary": vocabulary}, valid, test)


def from_path(path: Place, **options: Any) -> OwnData:
    """Make an `OwnData` of a file or folder, of the kind that its content and the options say.

    **Arguments:** `path`: the file or folder; `options`: those of the other makers. None means not given.

    **Raises:** DataError if it is none of the kinds, ValueError if an option is not for its kind.
    """
    path = Path(path).expanduser()
    check_place(path)
    given = {name: value for name, value in options.items() if value is not None}
    if path.is_dir():
        return from_folder(path, **given)
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"MThd":
        raise DataError(path, "is one MIDI file; give a folder with several, to train on some and test on others")
    if path.suffix.lower() in (".mid", ".midi") and "by" not in given:
        raise DataError(path, "is not a MIDI file, though it is named like one; give --by characters if it is a text")
    if start == b"PK\3\4":
        return _taken(from_midi, path, given, "MIDI files")
    if "by" not in given and (path.suffix.lower() in TABLES or start == b"PAR1" or given.keys() & {"label", "target"}):
        return _taken(from_csv, path, given, "a table")
    return _taken(from_text, path, given, "a text")


def _unclear(path: Path) -> DataError:
    from rru.data.own.table import read_table

    names = read_table(path).names
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return DataError(
        path,
        f"is a table with the columns {shown}; say what to do with it: --target COLUMN --horizon STEPS to forecast, "
        "--text COLUMN --label COLUMN or --label COLUMN --sequence COLUMN to classify, or --by characters to read it "
        "as text",
    )


def _refuse(path: Place, what: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"--{name.replace('_', '-')} is not for {what} such as {path}")


def _taken(make: Any, path: Path, given: Mapping[str, Any], what: str) -> OwnData:
    """Calls a maker with the options; raises ValueError if one is not for it."""
    _refuse(path, what, **{name: value for name, value in given.items() if name not in make.__kwdefaults__})
    found: OwnData = make(path, **given)
    return found


def _of_kind(
    kind: str, path: Place, options: Mapping[str, Any], valid: Place | None = None, test: Place | None = None
) -> OwnData:
    """Make an `OwnData`; raises DataError if the path is not a file with something in it or a folder."""
    places = [None if place is None else Path(place).expanduser() for place in (path, valid, test)]
    for place in places:
        if place is not None:
            check_place(place)
    assert places[0] is not None
    given = {name: value for name, value in options.items() if value is not None}
    return OwnData(kind, places[0], given, places[1], places[2])
