"""What the pages of results say around their tables, from the same files: seeds, sizes, and commands."""

import textwrap
from collections.abc import Iterable, Mapping

from rru import data
from rru.report import statistics
from rru.report.results import Section

WIDTH = 135  # of a line of prose


def counted(counts: Iterable[int]) -> str:
    """Return the seeds of a row: one number if all cells have as many, else one for each; empty if there are none."""
    numbers = list(counts)
    text = ", ".join(map(str, numbers if len(set(numbers)) > 1 else numbers[:1]))
    return "" if text == "0" else text


def seeds_in_words(sections: Iterable[Section]) -> str:
    """Say over how many seeds the entries of Table 1 are means, and by how much a winner leads if that is known."""
    tasks: dict[str, list[str]] = {}
    for section in sections:
        if counts := {point.line: len(point.tests) for point in section.points if point.tests}:
            alike = len(set(counts.values())) == 1 and len(counts) == len(section.points)
            every = f"{next(iter(counts.values()))} for each cell" if alike else _each(counts)
            sure = f", where {_lead(section)}" if section.verdict.significant else ""
            tasks.setdefault(every, []).append(f"{data.data_set(section.task).title}{sure}")
    return f"Entries are means over seeds: {'; '.join(f'{every} on {_and(on)}' for every, on in tasks.items())}."


def sizes(sections: list[Section]) -> str:
    """Say that sizes differ in Table 1, with those of its first task."""
    numbers = {point.line: f"{(point.parameters or 0) / 1e6:.1f}M" for point in sections[0].points}
    task = data.data_set(sections[0].task).title
    return f"Sizes are those that the paper's search found, so they differ: on {task}, {_each(numbers)} parameters."


def equal_sizes(medians: Mapping[str, Mapping[str, tuple[float, int]]]) -> str:
    """Say who is best on JSB Chorales with the preset `nade`, in which all cells have as many parameters."""
    (first, (best, _)), (second, (next_best, _)), *_ = sorted(medians["jsb"].items(), key=lambda item: item[1])
    output = "with a million parameters each and [joint outputs](docs/results.md#joint-outputs), another NLL than above"
    medians_text = f"the {first} reaches a median of {best:.2f} there and the runner-up, the {second}, {next_best:.2f}"
    return f"At equal sizes, {output}, {medians_text}."


def commands(sections: Iterable[Section]) -> list[str]:
    """Return the commands that train the runs of Table 1 again, with the seeds of each mean."""
    lines: dict[str, list[str]] = {}
    for section in sections:
        cells: dict[str, list[str]] = {}
        for point in section.points:
            if seeds := sorted(point.tests):
                whole = len(seeds) > 1 and seeds == list(range(seeds[-1] + 1))
                cells.setdefault(f"0-{seeds[-1]}" if whole else ",".join(map(str, seeds)), []).append(point.cell)
        for seeds_text, names in cells.items():
            chosen = f" --cells {','.join(names)}" * (len(names) < len(section.points))
            lines.setdefault(f"{chosen} --seeds {seeds_text} --workers 2 --threads 1", []).append(section.task)
    return ["```", *(f"rru run table1 --tasks {','.join(tasks)}{rest}" for rest, tasks in lines.items()), "```"]


def wrapped(*sentences: str) -> list[str]:
    """Return prose as lines."""
    return textwrap.wrap(" ".join(sentences), WIDTH, break_long_words=False, break_on_hyphens=False)


def _lead(section: Section) -> str:
    """Say by how much the best cell beats the runner-up, in a metric of which less is better."""
    first, second, *_ = sorted((point for point in section.points if point.tests), key=lambda point: point.test or 0.0)
    low, high = sorted(map(abs, statistics.interval(statistics.paired(first.tests, second.tests))))
    return f"the {first.line} leads the runner-up, the {second.line}, by {low:.2f}-{high:.2f} nats (95 % CI)"


def _each(numbers: Mapping[str, object]) -> str:
    return _and([f"{name} {number}" for name, number in numbers.items()])


def _and(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
