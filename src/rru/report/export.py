"""The same numbers for other programs: CSV with a row for each run and each point of a plan, Markdown with tables."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from rru.report import words
from rru.report.gather import metric_of
from rru.report.page import chapters
from rru.report.results import Report, line_of, paper, preset_of
from rru.report.tables import Entry

COLUMNS = (
    *(
        "kind",
        "plan",
        "preset",
        "task",
        "line",
        "cell",
        "learning_rate",
        "budget",
        "dropout",
        "seed",
        "seeds",
        "status",
    ),
    *("metric", "test", "test_deviation", "validation", "paper", "difference", "parameters", "epochs", "best_epoch"),
    *("steps", "tokens", "seconds", "folder", "reason", "problems"),
)


def to_csv(report: Report) -> str:
    """Rows of kind `run`, one for each, then of kind `point`: settings of a plan, with the mean over their seeds."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for row in (*_runs(report), *_points(report)):
        writer.writerow({name: _harmless(value) for name, value in row.items() if value is not None})
    return text.getvalue()


def _runs(report: Report) -> Iterable[dict[str, object]]:
    for run in report.runs:
        yield {
            "kind": "run",
            "preset": preset_of(run),
            "task": run.task,
            "line": line_of(run),
            "cell": run.cell,
            **(_settings(run.config) if run.known else {}),
            "seed": run.seed,
            "status": run.status,
            "metric": metric_of(run.task).key if run.known else None,
            "test": run.test,
            "validation": run.validation,
            "parameters": run.parameters,
            "epochs": run.epochs,
            "best_epoch": run.best_epoch,
            "steps": run.steps,
            "tokens": run.tokens,
            "seconds": run.duration,
            "folder": str(run.folder),
            "reason": run.reason,
            "problems": "; ".join(run.problems),
        }


def _points(report: Report) -> Iterable[dict[str, object]]:
    for section in (section for sections in report.sections.values() for section in sections):
        for point in section.points:
            of_paper = paper().get(section.name, {}).get(section.task, {}).get(point.line)
            known = of_paper is not None and point.test is not None
            yield {
                "kind": "point",
                "plan": section.name,
                "preset": section.preset,
                "task": section.task,
                "line": point.line,
                "cell": point.cell,
                **_settings(point.config),
                "seeds": len(point.tests),
                "status": point.state,
                "metric": section.metric.key,
                "test": point.test,
                "test_deviation": point.deviation,
                "validation": point.validation,
                "paper": of_paper,
                "difference": point.test - of_paper if known else None,  # type: ignore[operator]
                "parameters": point.parameters,
                "best_epoch": point.best_epoch,
            }


def _settings(config: dict[str, dict[str, object]]) -> dict[str, object]:
    model = config["model"]
    return {"learning_rate": config["optimiser"]["lr"], "budget": model["budget"], "dropout": model["dropout"]}


def _harmless(value: object) -> object:
    """Text that a spreadsheet would take for a formula is quoted."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def to_markdown(report: Report) -> str:
    """Every table, figure and run as tables."""
    parts = [f"# Results of {len(report.runs)} runs", *report.notes, METHOD]
    for chapter in chapters(report):
        parts += [f"## Preset {chapter.preset}", chapter.about]
        for table in chapter.tables:
            head = ["task", *table.lines, "best, and why"]
            rows = [[f"{row.task} ({row.metric})", *map(_entry, row.entries), row.verdict] for row in table.rows]
            parts += [f"### {table.title}", _table(head, rows)]
            parts += [f"{row.task}: {row.progress}" for row in table.rows if row.progress]
        for figure in chapter.figures:
            parts += [f"### {figure.heading}", _text(" ".join(figure.caption))]
            parts.append(_table(figure.numbers[0], figure.numbers[1:]))
    runs = [
        {
            "task": run.task,
            "cell or version": line_of(run),
            "preset": preset_of(run),
            "seed": words.NONE if run.seed is None else str(run.seed),
            "status": "; ".join(part for part in (run.status, run.reason, *run.problems) if part),
            **{name: text for name, (_, text) in words.numbers(run).items()},
            "folder": str(run.folder),
        }
        for run in report.runs
    ]
    return "\n\n".join([*parts, "## Every run", _table(list(runs[0]), (list(row.values()) for row in runs))]) + "\n"


METHOD = (
    "Ours choose the best epoch on validation and test its weights once; the paper's authors chose their settings on "
    "test. Behind a number of ours stand the paper's and the difference."
)


def _entry(entry: Entry) -> str:
    parts = [words.mean(entry.point), words.seeds(entry.point)]
    if entry.paper is not None:
        parts.append(f"paper {words.score(entry.paper)}")
    if entry.difference is not None:
        parts.append(words.signed(entry.difference))
    return ", ".join(part for part in parts if part)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_text(cell) for cell in line)} |" for line in lines)


def _text(text: str) -> str:
    """Text that Markdown takes for nothing but text."""
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", " ".join(text.split()))
