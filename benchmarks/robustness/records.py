"""The results file: one JSON line for each finished run, so that an interrupted suite can go on."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.robustness.plan import Run
from benchmarks.robustness.problem import Problem
from rru.files import append_line

Records = dict[Run, dict[str, Any]]


def read(path: Path, problems: Mapping[str, Problem]) -> Records:
    """Return the records by run, without those of unknown problems or of another number of steps."""
    return {
        run: record
        for run, record in _records(path)
        if run.problem in problems and record["steps"] == problems[run.problem].steps
    }


def _records(path: Path) -> Iterator[tuple[Run, dict[str, Any]]]:
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:  # the process ended while it wrote this line
            continue
        yield Run(*(record[field.name] for field in fields(Run))), record


def append(path: Path, record: Mapping[str, Any]) -> None:
    """Append a record, on a line of its own even after an incomplete one."""
    incomplete = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    append_line(path, b"\n" * incomplete + json.dumps(record, allow_nan=False).encode())


def names(records: Iterable[Run], field: str) -> list[Any]:
    """Return the different values of a field of runs, in order of appearance."""
    return list(dict.fromkeys(getattr(run, field) for run in records))
