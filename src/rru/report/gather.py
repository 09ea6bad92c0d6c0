"""Runs as their folders tell of them: what can be read, and what cannot and why. Nothing is run or written."""

import math
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rru import data
from rru.experiments import presets
from rru.experiments.execute import find_runs
from rru.experiments.schema import Config
from rru.training import Result, Run, RunError

METRICS_LIMIT, MOST_LINES = 64 << 20, 20_000  # bytes and lines of metrics.jsonl: more would make no better curve
LARGEST = 1e15
"""No number of a run is larger; one that is was not measured, and would not fit its place on the page."""
ENDED = ("finished", "diverged")
WORD, SENTENCE = 60, 500  # the most characters of a name and of a reason: a folder may hold anything


@dataclass(frozen=True)
class Metric:
    """What a kind of task is measured by: the score's name in files and on the page, and whether more is better."""

    key: str
    label: str
    higher_is_better: bool = False


NLL, PERPLEXITY, BPC = Metric("nll", "NLL"), Metric("perplexity", "perplexity"), Metric("bpc", "BPC")
ACCURACY = Metric("accuracy", "accuracy, %", higher_is_better=True)
METRICS = {
    "music": NLL,
    "words": PERPLEXITY,
    "characters": BPC,
    "bytes": BPC,
    "reviews": ACCURACY,
    "images": ACCURACY,
}


def metric_of(task: str) -> Metric:
    """What a task is measured by."""
    return METRICS[data.entry(task).kind]


@dataclass(frozen=True)
class Found:
    """A run.

    **Arguments:**

    - `folder`: where it is, as the way to it was given.
    - `config`: its settings as written; `known` if this version of rru knows them all.
    - `status`: `finished`, `diverged`, `running`, `stopped`, or `damaged` if that cannot be told.
    - `reason`: why it ended.
    - `problems`: whatever about it is not as it should be.
    - `test`, `validation`: of the best epoch, by the task's metric; None if there is none.
    - `epochs`, `best_epoch`, `steps`, `tokens`, `parameters`, `seconds`: as in result.json, or as far as it has come.
    - `curve`: validation by that metric after each epoch.
    - `environment`: what it ran on.
    - `music`: pictures and sounds made from its model.
    - `twin`: the folder of the run of the same settings and seed that counts in place of this one.
    """

    folder: Path
    config: Config = field(default_factory=dict)
    known: bool = False
    status: str = "damaged"
    reason: str = ""
    problems: tuple[str, ...] = ()
    test: float | None = None
    validation: float | None = None
    epochs: int | None = None
    best_epoch: int | None = None
    steps: int | None = None
    tokens: int | None = None
    parameters: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    curve: tuple[tuple[int, float], ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    music: tuple[Path, ...] = ()
    twin: Path | None = None

    @property
    def task(self) -> str:
        """The task's name, or what stands in its place."""
        return self._setting("task", "name")

    @property
    def cell(self) -> str:
        """The cell's name, or what stands in its place."""
        return self._setting("model", "cell")

    @property
    def seed(self) -> int | None:
        """Its seed, if its settings are known."""
        return int(self.config["schedule"]["seed"]) if self.known else None

    @property
    def duration(self) -> float | None:
        """How many seconds it took."""
        return self.seconds.get("total")

    @cached_property
    def group(self) -> str:
        """What it shares with the runs that differ from it in their seed alone: the config's id with seed 0."""
        return presets.config_id(presets.merged(self.config, {"schedule": {"seed": 0}})) if self.known else ""

    @property
    def counts(self) -> bool:
        """Whether its test belongs into a mean."""
        return self.known and self.status == "finished" and self.test is not None and self.twin is None

    def _setting(self, table: str, name: str) -> str:
        values = self.config.get(table)
        return str(values.get(name, ""))[:WORD] if isinstance(values, Mapping) else ""


def gather(roots: Iterable[Path]) -> list[Found]:
    """All runs below some folders, each once, in the order of their names."""
    found: dict[Path, Found] = {}

    def damaged(folder: Path, error: RunError) -> None:
        found.setdefault(folder.resolve(), Found(folder, problems=(str(error)[:SENTENCE],)))

    for root in roots:
        for run in find_runs(root, damaged):
            if run.path.resolve() not in found:
                try:
                    found[run.path.resolve()] = _read(run)
                except RecursionError:
                    damaged(run.path, RunError("a file of it is nested too deeply to be read"))
    return _twins(list(found.values()))


def _twins(found: list[Found]) -> list[Found]:
    """Marks all but one of the runs that share settings and seed; one that has ended counts first."""
    chosen: dict[tuple[str, int | None], Found] = {}
    for run in sorted(found, key=lambda run: run.status not in ENDED):
        if run.known:
            chosen.setdefault((run.group, run.seed), run)
    return [
        replace(run, twin=counted.folder) if (counted := chosen.get((run.group, run.seed), run)) is not run else run
        for run in found
    ]


def _read(run: Run) -> Found:
    """A run; each part of it that cannot be read is a problem, and the rest is read all the same."""
    problems: list[str] = []
    found = Found(run.path, run.config)
    try:
        found = replace(found, config=presets.checked(run.config), known=True)
    except (ValueError, TypeError, AttributeError) as error:
        problems.append(f"config.toml is not one that this version of rru knows: {error}")
    content: Mapping[str, Any] | None = None
    try:
        found = replace(found, status=run.status)
        content = run.result()
    except (RunError, OSError) as error:
        problems.append(str(error))
    try:
        found = replace(found, environment=run.environment() or {})
    except RunError as error:
        problems.append(str(error))
    found = _with_metrics(found, run, problems)
    if content is not None:
        found = _with_result(found, content, problems)
    return replace(found, problems=tuple(problem[:SENTENCE] for problem in problems), music=_music(run.path))


def _with_metrics(found: Found, run: Run, problems: list[str]) -> Found:
    """What metrics.jsonl tells: the curve, and how far a run has come that has no result yet."""
    path = run.path / "metrics.jsonl"
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > METRICS_LIMIT:
            problems.append(f"{path}: must be a file of at most {METRICS_LIMIT:,} bytes, was not read")
            return found
        lines, whole = run.metrics(), path.read_bytes().count(b"\n")
    except FileNotFoundError:
        if found.status in ENDED:
            problems.append(f"{path}: is not there, so there is no learning curve")
        return found
    except OSError as error:
        problems.append(f"{path}: cannot be read ({error.strerror})")
        return found
    if whole > len(lines):
        problems.append(f"{path}: line {len(lines) + 1} is damaged; it and what follows is left out")
    if not found.known:
        return found
    metric, curve = metric_of(found.task), []
    for line in lines[-MOST_LINES:]:
        epoch, scores = count(line.get("epoch")), line.get("validation")
        value = number(scores.get(metric.key)) if isinstance(scores, dict) else None
        if line.get("kind") == "epoch" and epoch and value is not None:
            curve.append((epoch, value))
    if not curve:
        return found
    best = (max if metric.higher_is_better else min)(curve, key=lambda point: point[1])
    return replace(found, curve=tuple(curve), epochs=curve[-1][0], best_epoch=best[0], validation=best[1])


def _with_result(found: Found, content: Mapping[str, Any], problems: list[str]) -> Found:
    """What result.json tells, as far as it is what this version of rru writes."""
    names = {entry.name for entry in fields(Result)}
    for what, keys in (("lacks", names - set(content)), ("also has", set(content) - names)):
        if keys:
            problems.append(f"result.json is of another version of rru: it {what} {', '.join(sorted(keys))}")
    if found.status not in ENDED:
        problems.append(f"result.json must have the status {' or '.join(ENDED)}, got {found.status[:WORD]!r}")
        found = replace(found, status="damaged")
    if found.known:
        key = metric_of(found.task).key
        test, validation = (_score(content.get(split), key) for split in ("test", "validation"))
        if test is None and found.status == "finished":
            problems.append(f"result.json has no test.{key}, so the run counts nowhere")
        found = replace(found, test=test, validation=found.validation if validation is None else validation)
    counted = ("epochs", "best_epoch", "steps", "tokens", "parameters")
    counts = {name: value for name in counted if (value := count(content.get(name))) is not None}
    spent = content.get("seconds")
    seconds = {str(name): number(value) for name, value in spent.items()} if isinstance(spent, dict) else {}
    return replace(
        found,
        reason=str(content.get("reason") or "")[:SENTENCE],
        seconds={name: value for name, value in seconds.items() if value is not None},
        **counts,  # type: ignore[arg-type]
    )


def _score(scores: Any, key: str) -> float | None:
    return number(scores.get(key)) if isinstance(scores, dict) else None


def _music(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted([*folder.glob("music/*.png"), *folder.glob("music/*.wav")]))


def number(value: Any) -> float | None:
    """The value if it is a number that can have been measured, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        return None
    return float(value) if math.isfinite(value) else None


def count(value: Any) -> int | None:
    """The value if it is a whole number from 0 that can have been counted, else None."""
    return value if type(value) is int and 0 <= value < LARGEST else None
