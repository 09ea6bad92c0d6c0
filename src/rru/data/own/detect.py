"""Make an `OwnData` of a user's files: `from_text`, `from_midi`, `from_csv`, `from_folder`; `from_path` detects which.

```python
from rru import data

data.from_text("novel.txt", by="words")
data.from_midi("chorales/", grid=1)
data.from_csv("reviews.csv", text="body", label="stars")
data.from_folder("reviews/")  # one sub-folder for each class
data.from_frame(frame, target="load", horizon=24)  # a DataFrame
```
"""

from collections.abc import Sequence
from pathlib import Path

from rru.data.catalogue import CATALOGUE
from rru.data.errors import DataError
from rru.data.own import OwnData
from rru.data.own.formats import FORMATS, Candidate, Options, format_of
from rru.data.own.frames import Frame, is_frame, saved
from rru.data.own.given import checked
from rru.data.own.in_memory import frame_errors
from rru.data.own.source import check_place, files_below, names_beside, similar
from rru.data.own.table import listed, read_table
from rru.data.spelling import in_command, option
from rru.suggestions import choice, did_you_mean

Place = Path | str
TABLES = (".csv", ".tsv", ".tab", ".parquet")
BY = ("characters", "words", "bytes")
MAX_NAME = 250  # bytes of the name of a file, on most systems
SERIES_OPTIONS = ("horizon", "id", "known", "calendar", "frequency", "season")


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
    options = {"vocabulary": vocabulary, "tokenizer": tokenizer, "valid": valid, "test": test}
    return own_data(choice("by", by, BY), path, options)


def from_midi(
    path: Place, *, grid: int | None = None, valid: Place | None = None, test: Place | None = None
) -> OwnData:
    """Read MIDI files, to learn to predict and compose such music.

    **Arguments:**

    - `path`: a folder with .mid and .midi files, also in sub-folders and zip archives; or a zip archive.
    - `grid`: steps per quarter note. Default: 4.
    - `valid`, `test`: folders to validate and test on. Default: a tenth of the files each.
    """
    return own_data("music", path, {"grid": grid, "valid": valid, "test": test})


def from_csv(
    path: Place,
    *,
    text: str | None = None,
    label: str | None = None,
    sequence: str | None = None,
    time: str | None = None,
    columns: str | Sequence[str] | None = None,
    vocabulary: int | None = None,
    target: str | None = None,
    horizon: int | None = None,
    id: str | None = None,
    known: str | Sequence[str] | None = None,
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
    - `time`: the column with times, or integers that count steps; rows are sorted by it. Default: the first that has
      times, or that is named such as `step` and clearly counts steps; without one, rows are in order already.
    - `id`: the column that says which series a row belongs to.
    - `columns`: other columns to learn from: a list, or a text with commas, or `all`. Default: none.
    - `known`: input columns whose future values are known in advance, such as prices or holidays; as `columns`.
    - `calendar`: whether to use the hour, the weekday and the time of year as inputs.
    - `frequency`: the time between steps, such as `h`, `30min`, `D`, `W` or `M`; values in between are averaged.
      Default: found from the times. Without dates it says what a step is, which gives the season.
    - `season`: number of steps after which a pattern repeats. Default: from the frequency, else found in the values.

    To classify texts or sequences:

    - `label`: the column with the class.
    - `text`: the column with texts to classify. Default: classify numbers.
    - `sequence`: the column that says which sequence a row belongs to. Default: each row is a sequence, and its columns
      are its steps.
    - `time`: the column to sort the rows of a sequence by. Default: the order in the table.
    - `columns`: the columns with the numbers of sequences: a list, or a text with commas. Default: all with numbers.
    - `vocabulary`: for texts, the most words to know. Default: 10,000.
    """
    calendar = calendar or None
    options = {name: value for name, value in locals().items() if name != "path" and value is not None}
    if target is None and label is None:
        raise unclear(Path(path).expanduser(), options)
    kind = "sequences" if text is None else "texts"
    return own_data(kind if target is None else "series", path, options)


def from_folder(path: Place, **options: object) -> OwnData:
    """Read a folder: of MIDI files, of texts with one sub-folder for each class, or of texts to predict.

    **Arguments:**

    - `path`: the folder.
    - `options`: those of `from_midi` or `from_text`; for texts with classes `vocabulary`, `valid` and `test`.
    """
    if not Path(path).expanduser().is_dir():
        check_place(Path(path).expanduser())
        raise DataError(path, "must be a folder")
    return from_path(path, **options)


def from_path(path: Place, **options: object) -> OwnData:
    """Make an `OwnData` of a file or folder, of the kind that its content and the options say.

    **Arguments:** `path`: the file or folder; `options`: those of the other makers. None means not given.

    **Raises:** DataError if it is none of the kinds, ValueError if an option is not for its kind.
    """
    path = Path(path).expanduser()
    check_place(path)
    given = {name: value for name, value in options.items() if value is not None}
    candidate = _candidate(path, given)
    for form in reversed(FORMATS.values()):
        if form.recognise is not None and form.recognise(candidate):
            return own_data(form.name, path, given)
    if is_table(candidate):
        raise unclear(path, given)
    return own_data(choice("by", str(given.pop("by", BY[0])), BY), path, given)


def from_frame(frame: Frame, *, name: str | None = None, **options: object) -> OwnData:
    """Make an `OwnData` of a table in memory. A copy is kept as a CSV file in the cache folder.

    **Arguments:**

    - `frame`: a DataFrame of pandas or polars, or a dict of columns.
    - `name`: what to call it. Default: `table-` and a hash of its content.
    - `options`: those of `from_csv`, where `valid` and `test` may be such tables, too.
    """
    places = {name: saved(value) if is_frame(value) else value for name, value in options.items()}
    with frame_errors():
        return from_path(saved(frame, name), **places)


def set_or_path(name: str) -> str | Path:
    """Return what a user means by a name: a data set of the catalogue, or a file or folder that exists.

    A name of the catalogue is a file only if it is written with a folder or a suffix, such as ./bach or bach.txt.
    """
    if name in CATALOGUE:
        return name
    what, others = ("TASK", ", a run") if in_command() else ("task", "")
    if not name or _is_text(name):
        got = f"a text of {len(name):,} characters, but texts are read from files: write it to one, and give its path"
        raise ValueError(f"{what} must be a file or folder, or the name of a data set; got {got}")
    path = Path(name).expanduser()
    if path.exists():
        return path
    if path.suffix or "/" in name:
        raise DataError(path, f"does not exist{similar(path)}")
    hint = did_you_mean(name, [*CATALOGUE, *names_beside(path)])
    raise ValueError(f"{what} must be a file or folder{others}, or one of {', '.join(CATALOGUE)}; got {name!r}{hint}")


def _is_text(string: str) -> bool:
    """Return whether a string cannot be the path of a file: it has several lines, or a part that is too long."""
    return "\n" in string or "\0" in string or any(len(part.encode()) > MAX_NAME for part in string.split("/"))


def file_or_text(source: Path | str) -> Path | str:
    """Return the path if a string names a file or folder, else the string, which is a text.

    Raise DataError if it looks like the name of a file that does not exist.
    """
    if isinstance(source, Path) or not source or _is_text(source):
        return source
    path = Path(source).expanduser()
    if path.exists():
        return path
    known = {suffix for form in FORMATS.values() for suffix in form.suffixes if suffix} | set(TABLES)
    if path.suffix.lower() in known and not source.split()[1:]:
        raise DataError(path, "does not exist; to give it as a text, put it in a list")
    return source


def own_data(kind: str, path: Place, options: Options) -> OwnData:
    """Make an `OwnData` of a kind.

    **Arguments:** `options`: those of its format, and `valid` and `test`; None means not given.

    **Raises:** DataError if the path is not a file with something in it or a folder, ValueError for a wrong option.
    """
    form = format_of(kind)
    given = {name: checked(name, value) for name, value in options.items() if value is not None}
    places = {"train": Path(path).expanduser()}
    places |= {split: Path(given.pop(split)).expanduser() for split in ("valid", "test") if split in given}
    for name in given:
        if name not in form.options:
            raise ValueError(f"{option(name)} is not for {form.title} such as {path}")
    completed = form.complete(places["train"], given)
    for place in places.values():
        check_place(place)
    return OwnData(kind, places["train"], completed, places.get("valid"), places.get("test"))


def _candidate(path: Path, options: Options) -> Candidate:
    if path.is_dir():
        known = dict.fromkeys(suffix for form in reversed(FORMATS.values()) for suffix in form.suffixes)
        suffixes = frozenset(file.suffix.lower() for file in files_below(path, tuple(known)))
        return Candidate(path, options, b"", suffixes)
    with path.open("rb") as file:
        return Candidate(path, options, file.read(4), frozenset([path.suffix.lower()]))


def is_table(candidate: Candidate) -> bool:
    """Return whether a file is read as a table: by its suffix or content, or because an option names a column."""
    if candidate.path.is_dir() or "by" in candidate.options:
        return False
    named = candidate.path.suffix.lower() in TABLES or candidate.start == b"PAR1"
    return named or bool({"label", "target"} & set(candidate.options))


def unclear(path: Path, options: Options) -> Exception:
    """Return the error for a table of which the options do not say what to do with it."""
    if "text" in options and "target" not in options:
        label, names = option("label", "COLUMN"), listed(read_table(path).names, 12)
        return DataError(path, f"needs {label}, the column with the class of each text; its columns are {names}")
    for name in SERIES_OPTIONS:
        if name in options:
            return ValueError(f"{option(name)} is not for a table without {option('target')} such as {path}")
    between = " " if in_command() else ", "
    target, horizon = option("target", "COLUMN"), option("horizon", "STEPS")
    text, label, sequence = (option(name, "COLUMN") for name in ("text", "label", "sequence"))
    return DataError(
        path,
        f"is a table with the columns {listed(read_table(path).names, 12)}; say what to do with it: "
        f"{target}{between}{horizon} to forecast, {text}{between}{label} or {label}{between}{sequence} to classify, "
        f"or {option('by', 'characters')} to read it as text",
    )
