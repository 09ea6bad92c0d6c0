"""Read runs from their folders, and record what cannot be read and why. Run no code, write nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rru.data import CATALOGUE, Facts
from rru.files import FileError, files_in
from rru.kinds import KINDS, kind_of
from rru.report.user_cells import config_without_code, with_first_seed
from rru.settings import Config
from rru.settings.cells import cells
from rru.settings.tables import FLOAT32
from rru.tasks import Metric
from rru.training import ENDED, Result, Run, RunError, RunStatus, find_runs
from rru.training.own_code import missing_code
from rru.training.result import wrong_values
from rru.training.run_files import MAX_COUNT, METRICS, OWN_MODEL, WEB_PAGE, about_data, is_number, word

WORD, SENTENCE = 60, 500  # maximum length of a name and of a reason; a folder may contain anything
OF_EACH_SERIES = ("series", "starts", "splits")  # of data.json; 100,000 series take 100 MB, and the report shows none


@dataclass(frozen=True)
class RunRecord:
    """A run.

    **Arguments:**

    - `folder`: where it is.
    - `config`: its settings as written; `known`: the same as a config, if this version of rru knows them all (but
      options of a user's cell may be unknown).
    - `named_metric`: the metric that it names itself, for settings that are not known.
    - `status`: its status, `DAMAGED` if it cannot be determined.
    - `reason`: why it ended.
    - `problems`: everything that is wrong with it.
    - `test`, `validation`: the task's metric at the best epoch; None if there is none.
    - `scores`: all scores on the test split at the best epoch, by name.
    - `best_test`: the best test score of all epochs, with `schedule.test_every_epoch`; never used to compare runs.
    - `epochs`, `best_epoch`, `steps`, `tokens`, `parameters`, `seconds`: as in result.json, or so far.
    - `curve`: the validation score after each epoch, by that metric.
    - `environment`: what it ran on.
    - `music`: pictures and sounds made from its model; `web_page`: the page that runs it, None if there is none.
    - `details`: what it kept of the test split besides scores; `data_json`: about the user's own data, without
      what it has of each series; both unchecked.
    - `duplicate_of`: the folder of a run with the same settings and seed that counts instead of this one.
    """

    folder: Path
    config: Mapping[str, object] = field(default_factory=dict)
    known: Config | None = None
    named_metric: Metric | None = None
    status: RunStatus = RunStatus.DAMAGED
    reason: str = ""
    problems: tuple[str, ...] = ()
    test: float | None = None
    validation: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    best_test: float | None = None
    epochs: int | None = None
    best_epoch: int | None = None
    steps: int | None = None
    tokens: int | None = None
    parameters: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    curve: tuple[tuple[int, float], ...] = ()
    environment: Mapping[str, object] = field(default_factory=dict)
    music: tuple[Path, ...] = ()
    web_page: Path | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    data_json: Mapping[str, Any] = field(default_factory=dict)
    duplicate_of: Path | None = None

    @property
    def task(self) -> str:
        """The task as named in the config, cut to `WORD` characters; empty if missing."""
        return word(self.config, "task", "name")[:WORD]

    @property
    def cell(self) -> str:
        """The cell as named in the config, cut to `WORD` characters; empty if missing."""
        return word(self.config, "model", "cell")[:WORD]

    @property
    def seed(self) -> int | None:
        """Its seed."""
        schedule = self.config.get("schedule")
        seed = schedule.get("seed") if isinstance(schedule, Mapping) else None
        return seed if type(seed) is int else None

    @property
    def facts(self) -> Facts:
        """What is known about the user's own data, checked; of series and of damaged facts what no model needs."""
        try:
            return self.known.data.format.facts.of(self.data_json) if self.known and self.known.data else Facts.of({})
        except ValueError:
            return Facts.of(self.data_json)

    @property
    def metric(self) -> Metric | None:
        """Its metric, if its settings are known, or if it names one."""
        return self.named_metric if self.known is None else kind_of(self.known.kind).metric

    @property
    def duration(self) -> float | None:
        """The seconds it took."""
        return self.seconds.get("total")

    @cached_property
    def group(self) -> str:
        """The config's id with seed 0, shared by runs that differ only in their seed."""
        return with_first_seed(self.known).id if self.known else ""

    @cached_property
    def group_in_float32(self) -> str:
        """The same of the config with all products in float32: that of a preset or plan."""
        if self.known is None or self.known.schedule.precision == FLOAT32:
            return self.group
        return with_first_seed(replace(self.known, schedule=replace(self.known.schedule, precision=FLOAT32))).id

    @property
    def counts(self) -> bool:
        """Whether its test score counts."""
        finished = self.status == RunStatus.FINISHED and self.test is not None
        return finished and self.known is not None and self.duplicate_of is None

    @property
    def located_problems(self) -> list[str]:
        """Its problems, each of which names its folder or a file in it."""
        folder = str(self.folder)
        return [problem if problem.startswith(folder) else f"{folder}: {problem}" for problem in self.problems]


def gather(roots: Iterable[Path]) -> list[RunRecord]:
    """Read all runs below some folders, each once, in the order of their names."""
    runs: dict[Path, RunRecord] = {}

    def damaged(folder: Path, error: FileError) -> None:
        runs.setdefault(folder.resolve(), RunRecord(folder, problems=(str(error)[:SENTENCE],)))

    for root in roots:
        for run in find_runs(root, damaged):
            if run.path.resolve() not in runs:
                try:
                    runs[run.path.resolve()] = _read(run)
                except RecursionError:
                    damaged(run.path, RunError("one of its files is nested too deeply to be read"))
    return _mark_duplicates(list(runs.values()))


def _mark_duplicates(runs: list[RunRecord]) -> list[RunRecord]:
    """Mark duplicates: of runs with the same settings and seed only one counts, preferably one that has ended."""
    chosen: dict[tuple[str, int | None], RunRecord] = {}
    for run in sorted(runs, key=lambda run: run.status not in ENDED):
        if run.known:
            chosen.setdefault((run.group, run.seed), run)
    counted = [chosen.get((run.group, run.seed), run) for run in runs]
    pairs = zip(runs, counted, strict=True)
    return [run if run is other else replace(run, duplicate_of=other.folder) for run, other in pairs]


def _read(run: Run) -> RunRecord:
    """Read a run. If a part cannot be read, record a problem and read the rest."""
    problems: list[str] = []
    record = RunRecord(run.path, run.tables)
    try:
        record = replace(record, known=_config(run))
    except (RunError, ValueError, TypeError, AttributeError) as error:
        if OWN_MODEL not in run.tables and not missing_code(run.path, run.tables):
            problems.append(
                f"this version of rru does not know these settings (config.toml): {error.__cause__ or error}"
            )
    content: Mapping[str, Any] | None = None
    try:
        content = run.result_content()
        if content is None:
            record = replace(record, status=run.status)
        elif content.get("status") in ENDED:
            record = replace(record, status=RunStatus(str(content["status"])))
    except (FileError, OSError) as error:
        problems.append(str(error))
    record = replace(record, named_metric=_named_metric(run.tables, content or {}))
    try:
        record = replace(record, environment=run.environment() or {})
        about = {name: value for name, value in about_data(run.path).items() if name not in OF_EACH_SERIES}
        record = replace(record, details=run.details(), data_json=about)
    except FileError as error:
        problems.append(str(error))
    record = _with_metrics(record, run, problems)
    if content is not None:
        record = _with_result(record, content, problems)
    music = tuple(files_in(run.path / "music", ".png", ".wav"))
    web_page = next((path for path in files_in(run.path, ".html") if path.name == WEB_PAGE), None)
    shown = tuple(problem[:SENTENCE] for problem in problems)
    return replace(record, problems=shown, music=music, web_page=web_page)


def _named_metric(tables: Mapping[str, Any], result: Mapping[str, Any]) -> Metric | None:
    """Return the metric in result.json, that of a user's own model, or that of a data set of the catalogue."""
    metrics = {kind.metric.key: kind.metric for kind in KINDS.values()}
    if not {"metric", "higher_is_better"} & set(wrong_values(result)) and "metric" in result:
        name = result["metric"][:WORD]
        return metrics.get(name) or Metric(name, name, result.get("higher_is_better", False))
    if name := word(tables, OWN_MODEL, "metric")[:WORD]:
        return Metric(name, name)
    task = word(tables, "task", "name")
    return kind_of(CATALOGUE[task].kind).metric if task in CATALOGUE and "data" not in tables else None


def _config(run: Run) -> Config:
    """Return the settings of a run. The code of a user's cell is not needed, and that in the folder is never run."""
    loaded = OWN_MODEL in run.tables or run.tables["model"]["cell"] in cells()
    return run.config if loaded else config_without_code(run.tables)


def _with_metrics(record: RunRecord, run: Run, problems: list[str]) -> RunRecord:
    """Add the contents of metrics.jsonl: the learning curve, and the progress of an unfinished run."""
    try:
        epochs = run.epochs(problems)
    except FileError as error:
        problems.append(str(error))
        return record
    if not epochs and record.status in ENDED:
        problems.append(f"{run.path / METRICS}: is missing or empty, so there is no learning curve")
    metric = record.metric
    if metric is None:
        return record
    scores = [(epoch.epoch, number(epoch.validation.get(metric.key))) for epoch in epochs if epoch.epoch]
    curve = [(epoch, value) for epoch, value in scores if value is not None]
    if not curve:
        return record
    best = metric.best(value for _, value in curve)
    tests = [value for epoch in epochs if (value := number(epoch.test.get(metric.key))) is not None]
    return replace(
        record,
        curve=tuple(curve),
        epochs=curve[-1][0],
        best_epoch=next(epoch for epoch, value in curve if value == best),
        validation=best,
        best_test=metric.best(tests),
    )


def _with_result(record: RunRecord, content: Mapping[str, Any], problems: list[str]) -> RunRecord:
    """Add the contents of result.json, ignoring values that this version of rru would not write."""
    names, wrong = {entry.name for entry in fields(Result)}, wrong_values(content)
    for what, keys in (("lacks", names - set(content)), ("also has", set(content) - names)):
        if keys:
            problems.append(f"result.json is of another version of rru: it {what} {', '.join(sorted(keys))}")
    problems += [f"result.json {what}" for what in wrong.values()]
    values = {name: value for name, value in content.items() if name in names and name not in wrong}
    if record.metric is not None:
        key = record.metric.key
        test, validation = (number(values.get(split, {}).get(key)) for split in ("test", "validation"))
        if test is None and record.status == RunStatus.FINISHED and record.known:
            problems.append(f"result.json has no test.{key}, so the run does not count")
        record = replace(record, test=test, validation=record.validation if validation is None else validation)
    counted = ("epochs", "best_epoch", "steps", "tokens", "parameters")
    seconds = {name: number(value) for name, value in values.get("seconds", {}).items()}
    scores = {name: number(value) for name, value in values.get("test", {}).items()}
    return replace(
        record,
        scores={name: value for name, value in scores.items() if value is not None},
        reason=values.get("reason", "")[:SENTENCE],
        seconds={name: value for name, value in seconds.items() if value is not None},
        **{name: values[name] for name in counted if name in values},
    )


def number(value: object) -> float | None:
    """Return the value if it is a plausible measurement that fits on the page, else None."""
    return float(value) if is_number(value) and abs(value) < MAX_COUNT else None
