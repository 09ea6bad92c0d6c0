"""Say in one sentence what runs show: on each data set, and on the whole."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rru.kinds import kind_of
from rru.report.formatting import counted, score
from rru.report.identify import CELLS
from rru.report.results import Report, Section
from rru.report.tables import Comparison, Row, row_of

VERBS = {"compose": "predicts", "write": "predicts", "classify": "classifies", "forecast": "forecasts"}
"""What a model does, by the main command of its kind of data."""
NOUNS = {
    "bach": "chorales",
    "jsb": "chorales",
    "imdb": "reviews",
    "mnist": "digits",
    "pmnist": "digits",
    "music": "music",
    "characters": "text",
    "words": "text",
    "bytes": "text",
}
"""What the catalogue's data sets consist of, by task, or by kind of data."""


def short_names(section: Section) -> tuple[Mapping[str, str], str]:
    """Return a name for each line that has runs, without what all of them share; and that."""
    parts = {line: line.partition(", ") for line in section.begun}
    shared = {rest for _, _, rest in parts.values()}
    names = {line: first for line, (first, _, _) in parts.items()}
    if len(shared) == 1 and len(set(names.values())) == len(names):
        return names, shared.pop()
    return {line: line for line in parts}, ""


def sentence(section: Section, row: Row) -> str:
    """Return what the runs on a data set show."""
    names, _ = short_names(section)
    ranking, subject = row.ranking, _subject(section)
    runs = [run for points in section.begun.values() for point in points for run in point.runs]
    if section.is_trial:
        finished = sum(run.counts for run in runs)
        return f"Trial runs on {subject} work: {finished} of {counted(len(runs), 'run')} finished"
    if not ranking:
        states = Counter(str(run.status) for run in runs)
        return f"No result on {subject} yet: {', '.join(f'{count} {state}' for state, count in states.items())}"
    best = f"{row.metric.label.partition(',')[0]} {_number(row, ranking[0])}"
    name = names[ranking[0].point.line]
    if len(ranking) == 1:
        return f"{name} reaches {best} on {subject}; {_seeds(ranking)}"
    if not section.ranked:
        tried = f"{len(ranking)} settings tried on {subject}"
        return f"{tried}, not ranked since they differ: the best has {best} ({name}); {_seeds(ranking)}"
    if not section.verdict.best:
        both = f"{name} and {names[ranking[1].point.line]}"
        return f"{both} are equal on {subject}: {best}; {_seeds(ranking)}"
    second = names[ranking[1].point.line]
    article = "the " if second in CELLS.values() else ""
    numbers = f"{best} against {_number(row, ranking[1])} for {article}{second}"
    verdict = section.verdict
    if verdict.significant:
        return f"{name} {_does_best(section)}: {numbers}; significant, {_seeds(ranking)}"
    if verdict.shown:  # a single seed each
        return f"{name} {_does_best(section)}: {numbers}; {_seeds(ranking)}"
    return f"{name} is ahead on {subject}, but not significantly: {numbers}; {_seeds(ranking)}"


def headline(section: Section, row: Row) -> str:
    """Return what the runs on a data set show, without numbers."""
    ranking = row.ranking
    if section.is_trial or not ranking:
        return sentence(section, row)
    name, verdict = short_names(section)[0][ranking[0].point.line], section.verdict
    if len(ranking) == 1:
        return f"{name}; {_seeds(ranking)}"
    if not section.ranked:
        return f"{len(ranking)} settings, not ranked; {_seeds(ranking)}"
    if not verdict.best:
        return f"{len(ranking)} lines, two are equal; {_seeds(ranking)}"
    return f"{name} is best of {len(ranking)}, {'' if verdict.significant else 'not '}significant; {_seeds(ranking)}"


def _does_best(section: Section) -> str:
    """Return what the best cell does: `predicts unseen chorales best`."""
    config = section.points[0].config
    verb = VERBS.get(kind_of(config.kind).commands[0])
    noun = NOUNS.get(section.task, NOUNS.get(config.kind))
    if config.data is None and verb and noun:
        return f"{verb} unseen {noun} best"
    return f"{verb} {section.subject} best" if verb else f"is best on {section.subject}"


def _subject(section: Section) -> str:
    """Return the title of a data set without its explanation."""
    return section.subject if section.points[0].config.data else section.subject.partition(",")[0]


def _number(row: Row, entry: Comparison) -> str:
    unit = "\N{NO-BREAK SPACE}%" if row.metric.label.endswith("%") else ""
    return f"{score(entry.point.test, 2)}{unit}"


def _seeds(ranking: Sequence[Comparison]) -> str:
    counts = {len(entry.point.tests) for entry in ranking}
    each = " each" * (len(ranking) > 1)
    if counts == {1}:
        return f"one seed{each}"
    return f"{counts.pop()} seeds{each}" if len(counts) == 1 else f"{min(counts)} to {max(counts)} seeds{each}"


def opening(report: Report) -> str:
    """Return the first sentence of the page, from the main comparison on each data set."""
    firsts = [sections[0] for sections in report.by_data]
    comparisons = {sentence(section, row_of(section, list(section.lines))): section for section in firsts}
    leaders = {text: leader for text, section in comparisons.items() if (leader := _leader(section))}
    if len(leaders) < 2:
        nothing = f"{counted(len(report.runs), 'run')}, none of which has a result"
        return next(iter([*leaders, *comparisons]), nothing)
    (first, most), *others = Counter(leaders.values()).most_common()
    of_all = f"of {sum(_is_comparison(section) for section in comparisons.values())} data sets"
    if others and others[0][1] == most:
        return f"No cell leads: {first} and {others[0][0]} are each best on {most} {of_all}"
    significant = sum(leader == first and comparisons[text].verdict.significant for text, leader in leaders.items())
    sure = f"significantly on {significant}" if significant else "on none significantly"
    return f"{first} is best on {most} {of_all}, {sure}"


def _is_comparison(section: Section) -> bool:
    """Return whether there are results to compare, with or without a winner."""
    return bool(section.verdict.reason) and section.ranked and not section.is_trial


def _leader(section: Section) -> str:
    """Return the name of the best cell; empty if there is none, or if the scores mean nothing."""
    cells = [point.cell for point in section.points if point.line == section.verdict.best]
    return CELLS.get(cells[0], cells[0]) if cells else ""
