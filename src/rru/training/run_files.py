"""Read the files of run folders and exports. They may come from anyone: sizes are limited, types are checked.

No other module opens these files; `tests/training/test_run_files.py` checks that.
"""

import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeGuard

from rru.files import MANIFEST, MAX_VALUES, Damaged, json_values, open_file, parse_json, read_file
from rru.settings import toml
from rru.training.errors import RunError

CONFIG = "config.toml"
ENVIRONMENT = "env.json"
METRICS = "metrics.jsonl"
RESULT = "result.json"
VOCABULARY = "vocabulary.json"
ABOUT_DATA = "data.json"
DETAILS = "details.json"
FINGERPRINT = "fingerprint.json"
CELL = "cell.py"
KIND = "kind.py"
EXPORT_CONFIG = "config.json"
WEB_PAGE = "page.html"
"""The page that runs the model in a browser, if one was exported to here; the report links to it."""
ERROR = "error.txt"
"""Written by plans: the error of the last attempt."""
OWN_MODEL = "own_model"
"""The table of config.toml that runs of a user's own model have, trained by `rru.fit`."""

LIMIT = 1 << 20  # largest config, env.json or result.json, in bytes
ABOUT_LIMIT = 32 << 20  # largest data.json, in bytes: 100,000 series have a name, a scaling and splits each
ABOUT_VALUES = 2_000_000  # values of a data.json: 13 of each series, and commas in its name
FINGERPRINT_LIMIT = 4 << 20  # largest fingerprint.json, in bytes
METRICS_LIMIT = 64 << 20  # largest metrics.jsonl that is shown, in bytes
RESUMED_LIMIT = 1 << 30  # largest metrics.jsonl of a run that is resumed, in bytes
LINE_LIMIT = 64 << 10  # longest line of metrics.jsonl, in bytes
MAX_EPOCHS = 20_000  # epochs that are kept of metrics.jsonl, the last ones
MAX_LINES = 100_000  # lines of metrics.jsonl that are shown, the first ones
MAX_DAMAGES, GIVE_UP = 3, 1000  # damaged lines that are named, and after which the rest is not read
MAX_COUNT = 1e15  # counts: more cannot be real


@dataclass(frozen=True)
class Epoch:
    """The scores after an epoch, from metrics.jsonl.

    **Arguments:**

    - `epoch`: counted from 1; 0 is before training.
    - `validation`: the finite scores by metric.
    - `test`: the same on the test split, with `schedule.test_every_epoch`; else empty.
    - `train_loss`: the mean loss of the epoch's training steps; None before training, or if it is not finite.
    - `step`: training steps so far.
    """

    epoch: int
    validation: Mapping[str, float]
    test: Mapping[str, float] = field(default_factory=dict)
    train_loss: float | None = None
    step: int = 0


@dataclass(frozen=True)
class MetricsLine:
    """A line of metrics.jsonl.

    **Arguments:**

    - `text`: the line, with its end.
    - `content`: its values by name.
    - `epoch`, `step`: the epoch and step it was written in.
    """

    text: bytes
    content: Mapping[str, object]
    epoch: int
    step: int

    @property
    def closes_epoch(self) -> bool:
        """Whether it has the validation after an epoch."""
        return self.content.get("kind") == "epoch"

    @property
    def scores(self) -> Epoch:
        """The scores in a line that closes an epoch."""
        validation, test = (finite_scores(self.content.get(split)) for split in ("validation", "test"))
        loss = self.content.get("train_loss")
        return Epoch(self.epoch, validation, test, loss if is_number(loss) else None, self.step)


def is_export(folder: Path) -> bool:
    """Return whether `rru export` made the folder. Version 0.1 wrote a manifest, later ones write config.json."""
    return (folder / EXPORT_CONFIG).exists() or (folder / MANIFEST).exists()


def has_config(folder: Path) -> bool:
    """Return whether there is a run in a folder."""
    return (folder / CONFIG).exists()


def last_change(folder: Path) -> float | None:
    """Return when a run was last changed, in seconds since 1970; None if it is gone."""
    times = []
    for name in (RESULT, METRICS, CONFIG):
        try:
            times.append((folder / name).lstat().st_mtime)
        except OSError:
            continue
    return max(times, default=None)


def read_tables(folder: Path) -> toml.Tables:
    """Return the tables of config.toml, unchecked."""
    path = folder / CONFIG
    try:
        return tomllib.loads(read_file(path, LIMIT).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path}: cannot be read ({error})") from error


def word(tables: Mapping[str, object], table: str, name: str) -> str:
    """Return a setting of unchecked tables if it is a text; else an empty one."""
    values = tables.get(table)
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, str) else ""


def read_object(path: Path, advice: str = "", limit: int = LIMIT, most: int = MAX_VALUES) -> dict[str, object] | None:
    """Return the JSON object in a file; None if the file does not exist.

    **Arguments:** `advice` ends the error's message; `limit`, `most`: the most bytes and values of the file.
    """
    try:
        content = parse_json(read_file(path, limit), most)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path}: cannot be read ({error}){advice}") from error
    if not isinstance(content, dict):
        raise RunError(f"{path}: must hold an object{advice}")
    return content


def about_data(folder: Path, *, linked: bool = False) -> dict[str, object]:
    """Return what a run or export keeps about the user's own data; empty if it is on a data set of the catalogue.

    **Arguments:** `linked`: whether the file may be a link, as in downloads from the Hugging Face Hub.
    """
    path = folder / ABOUT_DATA
    return read_object(linked_file(path) if linked else path, limit=ABOUT_LIMIT, most=ABOUT_VALUES) or {}


def about_content(facts: Mapping[str, object]) -> bytes:
    """Return the content of data.json; raise ValueError if it is too large to be read again."""
    content = (json.dumps(facts, indent=1) + "\n").encode()
    if len(content) > ABOUT_LIMIT or json_values(content) > ABOUT_VALUES:
        size = f"{len(content):,} bytes and {json_values(content):,} values"
        most = f"at most {ABOUT_LIMIT:,} and {ABOUT_VALUES:,} are allowed"
        raise ValueError(f"too many or too long names of series or classes: {ABOUT_DATA} would have {size}; {most}")
    return content


def linked_file(path: Path) -> Path:
    """Return where a link leads, or the path itself if it is none. Whether there is a file is not checked."""
    return Path(os.path.realpath(path))


def last_error(folder: Path) -> str:
    """Return the first line of the last attempt's error; empty if it did not fail."""
    try:
        return read_file(folder / ERROR, LIMIT).decode("utf-8", "replace").partition("\n")[0] or "unknown"
    except (OSError, Damaged):
        return ""


def read_lines(path: Path, damages: list[str], limit: int = METRICS_LIMIT) -> Iterator[MetricsLine]:
    """Yield the lines of metrics.jsonl. Skip damaged lines; an incomplete last line is no damage.

    **Arguments:**

    - `path`: the file; need not exist.
    - `damages`: a message for each of the first damaged lines is appended to it, and one for the number of others.
    - `limit`: the largest file to read, in bytes.
    """
    try:
        with open_file(path, limit) as file:
            for number, line in enumerate(_parsed(file, path, damages)):
                if number == MAX_LINES and limit <= METRICS_LIMIT:
                    damages.append(f"{path}: has more than {MAX_LINES} lines; the others are not shown")
                    return
                yield line
    except FileNotFoundError:
        return
    except OSError as error:
        raise Damaged(f"{path}: cannot be read ({error.strerror or error})") from error


def _parsed(file: IO[bytes], path: Path, damages: list[str]) -> Iterator[MetricsLine]:
    number, more = 0, 0
    while text := file.readline(LINE_LIMIT):
        number += 1
        if len(text) == LINE_LIMIT and not text.endswith(b"\n"):
            damages.append(f"{path}: line {number} has more than {LINE_LIMIT} bytes; it and what follows are left out")
            break
        if not text.endswith(b"\n"):  # a killed process left it incomplete
            break
        line = _line(text)
        if line is not None:
            yield line
        elif len(damages) < MAX_DAMAGES:
            damages.append(f"{path}: line {number} is damaged and left out")
        else:
            more += 1
        if more == GIVE_UP:
            damages.append(f"{path}: more than {GIVE_UP} lines are damaged; what follows line {number} is left out")
            return
    if more:
        damages.append(f"{path}: {more} more lines are damaged and left out")


def _line(text: bytes) -> MetricsLine | None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    epoch, step = count(content.get("epoch")), count(content.get("step", 0))
    if epoch is None or step is None or not isinstance(content.get("kind"), str):
        return None
    return MetricsLine(text, content, epoch, step)


def finite_scores(values: object) -> dict[str, float]:
    """Return the scores in a mapping that are finite numbers; none if it is something else."""
    entries = values.items() if isinstance(values, Mapping) else ()
    return {name: float(value) for name, value in entries if is_number(value)}


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number that fits a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 2**63


def count(value: object) -> int | None:
    """Return the value if it is a plausible count, else None."""
    return value if type(value) is int and 0 <= value < MAX_COUNT else None
