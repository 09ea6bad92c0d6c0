"""Tables of runs that no plan has: on own data, or with settings of their own. Only like runs are ranked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rru.experiments.plans import Plan, PlannedRun
from rru.report.data_variants import DataVariant, data_variant, inputs, titles
from rru.report.gather import RunRecord
from rru.report.identify import CELLS, MAX_LINE, OWN, TRIAL, YOURS, distinct, line_of, origin, preset_of
from rru.report.user_cells import flat, of_any_cell, with_first_seed
from rru.settings import presets

MAX_SETTINGS = 12  # lines of a table of different settings, such as the trials of a search
MAX_TABLES = 4  # of changed settings that several cells share; if there are more, they are a search
AUTO = presets.OWN_PRESETS[0]


@dataclass(frozen=True)
class Terms:
    """What runs must share for a fair comparison of cells.

    **Arguments:**

    - `preset`: the preset their settings come from; empty if it is not known.
    - `changes`: the settings that differ from it, as text; of an unknown preset, all settings.
    """

    preset: str
    changes: str

    @property
    def text(self) -> str:
        """The terms in words; empty for the usual preset of own data."""
        known = [self.changes] if self.preset else []
        return ", ".join(filter(None, [f"preset {self.preset}" * (self.preset not in ("", AUTO)), *known]))


@dataclass(frozen=True)
class OwnPlan(Plan):
    """A table of own data or own settings.

    **Arguments:**

    - `terms`: what its runs share, in words.
    - `ranked`: whether they share all that a fair comparison needs.
    - `trial`: whether they only tried out the software.
    """

    terms: str
    ranked: bool
    trial: bool


def own_plans(runs: Iterable[RunRecord]) -> list[Plan]:
    """Return tables and convergence for each of the user's own data, and for settings that no plan has.

    Runs that share preset and changes have a table of their own, in which cells are ranked. All others share a table
    for each preset, with a line for each settings, of many those with the best validation.
    """
    order = {cell: place for place, cell in enumerate(CELLS)}
    runs = sorted(runs, key=lambda run: (order.get(run.cell, len(order)), run.group))
    own, others = dict[DataVariant, list[RunRecord]](), dict[str, list[RunRecord]]()
    for run in runs:
        if (variant := data_variant(run)) is not None:
            own.setdefault(variant, []).append(run)
        elif run.known is not None and preset_of(run) == OWN:
            others.setdefault(run.known.title, []).append(run)
    groups = [(YOURS, title, own[variant]) for variant, title in titles(runs).items()]
    groups += [(OWN, title, of_task) for title, of_task in others.items()]
    found = [(preset, title, table) for preset, title, of_data in groups for table in _tables(of_data)]
    return [
        plan for number, (preset, title, table) in enumerate(found) for plan in _plans(number, preset, title, table)
    ]


@dataclass(frozen=True)
class _Table:
    """Runs in one table: what they share, the same in words, and whether that makes a fair comparison."""

    terms: Terms
    words: str
    ranked: bool
    runs: Sequence[RunRecord]

    @property
    def place(self) -> tuple[bool, bool, bool, bool]:
        """A sort key: results first, then comparisons of cells, then the usual settings; trials last."""
        counts = any(run.counts for run in self.runs)
        return self.terms.preset == TRIAL, not counts, not self.ranked, bool(self.terms.changes)


def _tables(runs: Sequence[RunRecord]) -> list[_Table]:
    """Return the tables of one data set, the most telling first."""
    shared: dict[Terms, list[RunRecord]] = {}
    for run in runs:
        shared.setdefault(_terms(run), []).append(run)
    tables, rest = [], dict[str, dict[Terms, list[RunRecord]]]()
    for preset in dict.fromkeys(terms.preset for terms in shared):
        of_preset = {terms: of_terms for terms, of_terms in shared.items() if terms.preset == preset}
        compared = [terms for terms, of_terms in of_preset.items() if len({run.cell for run in of_terms}) > 1]
        changed = [terms for terms in compared if terms.changes]
        for terms, of_terms in of_preset.items():
            if not terms.changes or (terms in changed and len(changed) <= MAX_TABLES):
                tables.append(_Table(terms, terms.text, ranked=_same_inputs(of_terms), runs=of_terms))
            else:
                rest.setdefault(preset, {})[terms] = of_terms
    return sorted([*tables, *map(_different, rest.values())], key=lambda table: table.place)


def _different(of_preset: Mapping[Terms, Sequence[RunRecord]]) -> _Table:
    """Return the table of runs that share a preset, but not what was changed."""
    first, *others = of_preset
    runs = _best_settings([run for of_terms in of_preset.values() for run in of_terms])
    if not others:
        return _Table(first, first.text, _same_inputs(runs), runs)
    terms = Terms(first.preset, "")
    return _Table(terms, f"changed settings{f' of {terms.text}' * bool(terms.text)}", ranked=False, runs=runs)


def _terms(run: RunRecord) -> Terms:
    """Return what other runs must share with a run; if its preset is not known, all that cells can have in common."""
    came_from = origin(run)
    if came_from.preset or run.known is None:
        return Terms(came_from.preset, came_from.text)
    return Terms("", repr(sorted(of_any_cell(flat(run.known)))))


def _same_inputs(runs: Iterable[RunRecord]) -> bool:
    """Return whether all models see the same columns of a series."""
    return len({inputs(run) for run in runs}) == 1


def _plans(number: int, preset: str, title: str, table: _Table) -> Iterator[OwnPlan]:
    words = table.words.replace(":", "")[:MAX_LINE]  # the colon of a heading is before its subject
    for kind, what, shows in (("own", "Results", "table"), ("convergence", "Convergence", "convergence")):
        heading = f"{what} with {words}: {title}" if words else f"{what}: {title}"
        trial = table.terms.preset == TRIAL
        yield OwnPlan(f"{kind}-{number}", preset, heading, shows, False, _entries(table), words, table.ranked, trial)


def _best_settings(runs: list[RunRecord]) -> list[RunRecord]:
    """Return the runs of at most `MAX_SETTINGS` settings: the best of each cell, and then the best of all."""
    best: dict[str, float] = {}
    for run in runs:
        if run.validation is not None and run.metric is not None:
            loss = -run.validation if run.metric.higher_is_better else run.validation
            best[run.group] = min(best.get(run.group, loss), loss)
    ranked = sorted({run.group: run.cell for run in runs}.items(), key=lambda item: best.get(item[0], float("inf")))
    first_of_cell = {cell: group for group, cell in reversed(ranked)}
    chosen = [*first_of_cell.values(), *(group for group, _ in ranked if group not in first_of_cell.values())]
    return [run for run in runs if run.group in chosen[:MAX_SETTINGS]]


def _entries(table: _Table) -> list[PlannedRun]:
    """Return an entry for each settings, with a line that says in what it differs from the others."""
    entries: dict[str, PlannedRun] = {}
    for run in table.runs:
        if run.known is not None and run.group not in entries:
            changes = "" if _terms(run) == table.terms else origin(run).text
            line = ", ".join(filter(None, (line_of(run), inputs(run), changes)))
            planned = PlannedRun(run.task, line, {}, with_first_seed(run.known))
            entries[run.group] = distinct(planned, entries.values())
    return list(entries.values())
