"""Export the report's numbers: CSV with a row for each run and each point of a plan, and Markdown tables."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from rru.report import descriptions, formatting
from rru.report.figures import caption, numbers
from rru.report.identify import line_of, paper, preset_of
from rru.report.results import Report
from rru.report.tables import Comparison, tables
from rru.settings import Config

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
BOTH = ("cell", "test", "validation", "parameters", "best_epoch")  # attributes of runs and of points
OF_RUN = ("task", "seed", "status", "epochs", "steps", "tokens", "reason")  # attributes of runs only


def to_csv(report: Report) -> str:
    """Return CSV: a row of kind `run` per run, then a row of kind `point` (mean over seeds) per setting of a plan."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for row in (*_runs(report), *_points(report)):
        writer.writerow({name: _harmless(value) for name, value in row.items() if value is not None})
    return text.getvalue()


def _runs(report: Report) -> Iterable[dict[str, object]]:
    for run in report.runs:
        yield {
            **{name: getattr(run, name) for name in (*BOTH, *OF_RUN)},
            "kind": "run",
            "preset": preset_of(run),
            "line": line_of(run),
            **(_settings(run.known) if run.known else {}),
            "metric": run.metric.key if run.metric else None,
            "seconds": run.duration,
            "folder": str(run.folder),
            "problems": "; ".join(run.problems),
        }


def _points(report: Report) -> Iterable[dict[str, object]]:
    for section in (section for sections in report.sections.values() for section in sections):
        for point in section.points:
            of_paper = paper().get(section.plan.name, {}).get(section.task, {}).get(point.line)
            yield {
                **{name: getattr(point, name) for name in BOTH},
                "line": point.line,
                "kind": "point",
                "plan": section.plan.name,
                "preset": section.plan.preset,
                "task": section.task,
                **_settings(point.config),
                "seeds": len(point.tests),
                "status": point.state,
                "metric": section.metric.key,
                "test_deviation": point.deviation,
                "paper": of_paper,
                "difference": Comparison(point, of_paper, winner=False).difference,
            }


def _settings(config: Config) -> dict[str, object]:
    model = config.model
    return {"learning_rate": config.optimiser.lr, "budget": model.budget, "dropout": model.dropout}


def _harmless(value: object) -> object:
    """Quote text that a spreadsheet would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def to_markdown(report: Report) -> str:
    """Return all tables, figures and runs as Markdown tables."""
    beside_paper = any(table.has_paper for sections in report.sections.values() for table in tables(sections))
    parts = [
        f"# Results of {formatting.counted(len(report.runs), 'run')}",
        *report.notes,
        METHOD + PAPER * beside_paper,
    ]
    for preset, sections in report.sections.items():
        parts += [f"## {descriptions.named(preset).capitalize()}", descriptions.PRESETS.get(preset, "")]
        for table in tables(sections):
            head = ["task", *table.lines, "best"]
            rows = [[f"{row.task} ({row.metric.label})", *map(_entry, row.entries), row.verdict] for row in table.rows]
            parts += [f"### {table.title}", _table(head, rows)]
            parts += [f"{row.task}: {row.progress}" for row in table.rows if row.progress]
        for section in sections:
            if section.plan.shows != "table":
                head, *points = numbers(section)
                parts += [f"### {section.heading}", _text(" ".join(caption(section))), _table(head, points)]
    runs = [
        {
            "task": run.task,
            "cell or version": line_of(run),
            "preset": preset_of(run),
            "seed": formatting.NONE if run.seed is None else str(run.seed),
            "status": "; ".join(part for part in (run.status, run.reason, *run.problems) if part),
            **{name: text for name, (_, text) in descriptions.numbers(run).items()},
            "folder": str(run.folder),
        }
        for run in report.runs
    ]
    return "\n\n".join([*parts, "## All runs", _table(list(runs[0]), (list(row.values()) for row in runs))]) + "\n"


METHOD = "The best epoch is chosen on the validation split, and its weights are tested once."
PAPER = (
    " Our number is followed by the paper's and the difference. The paper's authors chose their settings on the test "
    "split, which makes the paper's numbers look better than they would on unseen data."
)


def _entry(entry: Comparison) -> str:
    parts = [descriptions.mean(entry.point), descriptions.seeds(entry.point)]
    if entry.paper is not None:
        parts.append(f"paper {formatting.score(entry.paper, 2)}")
    if entry.difference is not None:
        parts.append(formatting.signed(entry.difference))
    return ", ".join(part for part in parts if part)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_text(cell) for cell in line)} |" for line in lines)


def _text(text: str) -> str:
    """Escape text so that Markdown shows it literally."""
    return re.sub(r"([\\`*_<>|\[\]])", r"\\\1", " ".join(text.split()))
