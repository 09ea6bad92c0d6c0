"""Make the pages of results again from the files of runs: `python tools/make_results.py --add runs`.

`docs/results/runs` holds what the tables need of each run: its settings, its result, and the scores of each epoch.
From them come `docs/results/report.html` and `report.md`, and what is between marks such as `<!-- table1 -->` in
README.md, docs/results.md and the lab notes: tables, how many seeds they have, and the commands that give the same
means again. So no number is copied by hand. `--add` first copies the runs of
Table 1 at the paper's settings and of the presets `nade` and `best` that have begun in other folders, and every run
whose own folder is given.
"""

import argparse
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from results_prose import commands, counted, equal_sizes, seeds_in_words, sizes, wrapped

from rru import data, report
from rru.report.gather import RunRecord, gather
from rru.report.identify import CELLS, NARROW, all_plans, paper, preset_of
from rru.report.results import Point, Report, Section, build
from rru.training import Run, run_folder
from rru.training.run_files import CONFIG, METRICS, RESULT, Epoch

ROOT = Path(__file__).parents[1]
RUNS = Path("docs/results/runs")
PRESETS = ("paper", "nade", "best")
TABLE = "table1"
JOINT = "joint"
TIED = "tied"
SEEDS = "seeds"
REPRODUCE = "reproduce"
OTHERS = {
    "nade": ("RNN-NADE", {"jsb": "5.19", "nottingham": "2.31", "musedata": "5.60", "piano-midi": "7.05"}),
    "best": ("BALSTM", {"jsb": "5.05", "nottingham": "1.55", "musedata": "3.90", "piano-midi": "4.90"}),
}
"""For each preset with a joint output, another model and its test NLL: RNN-NADE is of Boulanger-Lewandowski, Bengio and
Vincent (2012), BALSTM of Johnson (2017)."""
OUTPUTS = {"nade": "nade", "best": "tied"}


def main() -> None:
    """Add runs if `--add` is given, and write every page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--add", type=Path, nargs="+", metavar="FOLDER", default=[], help="first copy runs from here")
    arguments = parser.parse_args()
    for run in gather(arguments.add):
        if run.epochs and (preset_of(run) in PRESETS or run.folder in arguments.add):
            add(run, ROOT / RUNS)
    for document, text in pages().items():
        document.write_text(text, encoding="utf-8")
    os.chdir(ROOT)  # the page names the folder of its runs
    report.write([RUNS], "docs/results/report.html", markdown="docs/results/report.md")


def add(run: RunRecord, place: Path) -> None:
    """Copy the settings and the result of a run, and of each epoch only the score that the report shows."""
    assert run.known is not None
    assert run.metric is not None
    folder = run_folder(run.known, place)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (CONFIG, RESULT):
        source = run.folder / name
        if source.exists() and source.resolve() != (folder / name).resolve():
            shutil.copyfile(source, folder / name)
    lines = [epoch_line(epoch, run.metric.key) for epoch in Run(run.folder).epochs()]
    (folder / METRICS).write_text("".join(lines), encoding="utf-8")


def epoch_line(epoch: Epoch, metric: str) -> str:
    """Return a line of metrics.jsonl with one score of each split, to ten digits."""
    content: dict[str, object] = {"kind": "epoch", "epoch": epoch.epoch}
    for split, scores in (("validation", epoch.validation), ("test", epoch.test)):
        if metric in scores:
            content[split] = {metric: float(f"{scores[metric]:.10g}")}
    return json.dumps(content, separators=(",", ":")) + "\n"


def pages() -> dict[Path, str]:
    """Return the documents with their tables made again."""
    results = build([ROOT / RUNS])
    sections = table1(results)
    tables = {
        "README.md": {
            TABLE: short_table(sections),
            SEEDS: wrapped(seeds_in_words(complete(sections)), sizes(sections), equal_sizes(medians(results, "nade"))),
        },
        "docs/results.md": {
            TABLE: summary_table(sections),
            SEEDS: wrapped(seeds_in_words(sections)),
            JOINT: joint_summary(results, "nade"),
            TIED: joint_summary(results, "best"),
            REPRODUCE: commands(sections),
        },
        "docs/lab/2026-11-results.md": {
            TABLE: long_table(sections),
            JOINT: joint_table(results, "nade"),
            REPRODUCE: commands(sections),
        },
        "docs/lab/2026-11-tied.md": {TIED: joint_table(results, "best")},
    }
    return {ROOT / name: replaced((ROOT / name).read_text(encoding="utf-8"), each) for name, each in tables.items()}


def replaced(text: str, tables: Mapping[str, Iterable[str]]) -> str:
    """Return a document with other tables between its marks."""
    for name, table in tables.items():
        before, rest = text.split(f"<!-- {name} -->\n")
        text = "\n".join([f"{before}<!-- {name} -->", *table, rest[rest.index("<!-- end -->") :]])
    return text


def table1(results: Report) -> list[Section]:
    """Return the tasks of Table 1 at the paper's settings, in the paper's order; those not begun have no runs."""
    begun = {}
    for section in results.sections.get("paper", ()):
        if section.plan.name == TABLE:
            points = tuple(point for point in section.points if point.line in paper()[TABLE][section.task])
            begun[section.task] = replace(section, points=points)
    plan = next(plan for plan in all_plans() if (plan.name, plan.preset) == (TABLE, "paper"))
    sections = []
    for task in paper()[TABLE]:
        points = tuple(Point(run.line, run.cell, run.point, run.config, ()) for run in plan.runs if run.task == task)
        sections.append(begun.get(task, Section(plan, task, points)))
    return sections


def complete(sections: Iterable[Section]) -> list[Section]:
    """Return the tasks on which all cells have a result."""
    return [section for section in sections if all(point.test is not None for point in section.points)]


def short_table(sections: list[Section]) -> list[str]:
    """Return the tasks on which all cells have a result, ours over the paper's."""
    rows = head(["", *(point.line for point in sections[0].points)])
    for section in complete(sections):
        tests = {point.line: point.test or 0.0 for point in section.points}
        rows.append(row(title(section), bold(tests, section.metric.higher_is_better)))
        theirs = paper()[TABLE][section.task]
        rows.append(row("in the paper", bold(theirs, section.metric.higher_is_better)))
    return rows


def summary_table(sections: list[Section]) -> list[str]:
    """Return all tasks, one in each row: every cell's mean or a dash, in parentheses the paper's, and the seeds."""
    rows = head(["", *(point.line for point in sections[0].points), "seeds"])
    for section in sections:
        tests = {point.line: point.test for point in section.points if point.test is not None}
        texts = dict(zip(tests, bold(tests, section.metric.higher_is_better), strict=True)) if tests else {}
        spread = {point.line: point.deviation for point in section.points if point.deviation is not None}
        ours = {line: f"{text} ± {spread[line]:.2f}" if line in spread else text for line, text in texts.items()}
        columns = [f"{ours.get(line, '-')} ({value:.2f})" for line, value in paper()[TABLE][section.task].items()]
        rows.append(row(title(section), [*columns, counted(len(point.tests) for point in section.points)]))
    return rows


def long_table(sections: list[Section]) -> list[str]:
    """Return all tasks: every cell's result or state, the paper's number, and the best epoch by test."""
    names = ("task", "cell", "ours", "paper", "difference", "best epoch by test", "validation", "epochs", "parameters")
    rows = head([*names, "seeds"])
    for section in sections:
        if not section.begun:
            theirs = ", ".join(f"{line} {value:.2f}" for line, value in paper()[TABLE][section.task].items())
            rows.append(row(title(section), ["all four", f"not run; the paper has {theirs}", *[""] * 7]))
            continue
        for number, point in enumerate(section.points):
            rows.append(row("" if number else title(section), cells_of(section, point)))
    return rows


def cells_of(section: Section, point: Point) -> list[str]:
    """Return the columns of one cell on one task."""
    theirs = paper()[TABLE][section.task][point.line]
    counted = [run for run in point.runs if run.counts]
    if point.test is None:
        return [point.line, *unfinished(point), f"{theirs:.2f}", *[""] * 6]
    spread = f" ± {point.deviation:.3f}" if point.deviation is not None else ""
    by_test = [run.best_test for run in counted]
    known = [value for value in by_test if value is not None]
    of_seeds = "" if len(known) == len(by_test) else f" ({len(known)} of {len(by_test)} seeds)"
    epochs = ", ".join(f"{run.epochs} ({run.best_epoch})" for run in counted)
    return [
        point.line,
        f"{point.test:.3f}{spread}",
        f"{theirs:.2f}",
        f"{(point.test - theirs) / theirs:+.1%}".replace("%", " %").replace("-", "\N{MINUS SIGN}"),
        f"{sum(known) / len(known):.3f}{of_seeds}" if known else "",
        f"{point.validation:.3f}",
        epochs,
        f"{point.parameters:,}",
        str(len(counted)),
    ]


def medians(results: Report, preset: str) -> dict[str, dict[str, tuple[float, int]]]:
    """Return the median test NLL and the seeds by task and cell with the joint output of a preset, in any precision."""
    found: dict[str, dict[str, tuple[float, int]]] = {}
    for section in results.sections.get(preset, ()):
        for point in section.points if section.plan.shows == "table" else ():
            cell, _, output = point.line.removesuffix(NARROW).partition(", ")
            if output == OUTPUTS[preset] and point.tests:
                of_task = found.setdefault(section.task, {})
                of_task.setdefault(cell, (median(point.tests.values()), len(point.tests)))  # float32 comes first
    return found


def joint_summary(results: Report, preset: str) -> list[str]:
    """Return the median test NLL of each task and cell with the joint output of a preset, with another model's."""
    other, theirs = OTHERS[preset]
    rows = head(["", *CELLS.values(), other, "seeds"])
    for task, of_cells in medians(results, preset).items():
        texts = bold({cell: value for cell, (value, _) in of_cells.items()}, higher_is_better=False)
        formatted = dict(zip(of_cells, texts, strict=True))
        columns = [formatted.get(cell, "") for cell in CELLS.values()]
        seeds = counted(count for _, count in of_cells.values())
        rows.append(row(data.data_set(task).title, [*columns, theirs.get(task, ""), seeds]))
    return rows


def joint_table(results: Report, preset: str) -> list[str]:
    """Return the results of a preset with joint outputs: medians over seeds, with another model's."""
    other, scores = OTHERS[preset]
    names = ("task", "cell and output", "test NLL", "averaged over frames", "validation", "epochs", "test of each seed")
    rows = head([*names, other])
    for section in results.sections.get(preset, ()):
        ended = [point for point in section.points if point.tests and section.plan.shows == "table"]
        for number, point in enumerate(ended):
            task, theirs = ("", "") if number else (data.data_set(section.task).title, scores.get(section.task, ""))
            rows.append(row(task, [*joint_cells(point), theirs]))
    return rows


def joint_cells(point: Point) -> list[str]:
    """Return the columns of one cell with a joint output."""
    runs = [run for run in point.runs if run.counts]
    scores = [(run.scores["nll"], run.scores["nll_per_frame"], run.validation) for run in runs if run.validation]
    return [
        point.line,
        *(f"{median(values):.3f}" for values in zip(*scores, strict=True)),
        ", ".join(f"{run.epochs} ({run.best_epoch})" for run in runs),
        ", ".join(f"{test:.3f}" for test in point.tests.values()),
    ]


def unfinished(point: Point) -> list[str]:
    """Say how far a cell without a result has come."""
    if not point.runs:
        return ["not run"]
    run = point.runs[0]
    return [f"unfinished: epoch {run.epochs}, best validation {run.validation:.3f} (epoch {run.best_epoch})"]


def title(section: Section) -> str:
    """Return the name of a task with its metric."""
    return f"{data.data_set(section.task).title} ({section.metric.label})"


def bold(values: dict[str, float], higher_is_better: bool) -> list[str]:
    """Format numbers, the best of several in bold, with those that are equal in the digits shown."""
    best = f"{(max if higher_is_better else min)(values.values()):.2f}" if len(values) > 1 else ""
    return [f"**{value:.2f}**" if f"{value:.2f}" == best else f"{value:.2f}" for value in values.values()]


def head(names: list[str]) -> list[str]:
    """Return the head of a Markdown table."""
    return [row(names[0], names[1:]), "|" + "---|" * len(names)]


def row(first: str, rest: Iterable[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join([first, *rest])} |"


if __name__ == "__main__":
    main()
