"""Figures of plans: pictures, captions, and their numbers as a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rru.kinds import kind_of
from rru.report import charts, descriptions, heatmaps
from rru.report.heatmaps import Panel
from rru.report.results import Section


@dataclass(frozen=True)
class Figure:
    """A figure.

    **Arguments:**

    - `heading`, `caption`: its title, and how to read it.
    - `panels`: its pictures.
    - `legend`: what the colours mean.
    - `numbers`: rows of a table with the same numbers; the first is the header.
    """

    heading: str
    caption: Sequence[str]
    panels: Sequence[Panel]
    legend: Sequence[Markup]
    numbers: Sequence[Sequence[str]]


def figure(section: Section) -> Figure:
    """Return the figure of a grid or a curve; without pictures if there is nothing to draw yet."""
    if section.plan.shows == "grid":
        panels, legend = heatmaps.panels(section)
    else:
        drawn = charts.curve(section)
        panels, legend = [Panel("", "", drawn)] if drawn else [], charts.legend(section)
    return Figure(section.heading, caption(section), panels, legend, numbers(section))


def caption(section: Section) -> list[str]:
    """Return how to read a figure, and what is missing in it."""
    sentences = [_how_to_read(section)]
    if not section.plan.in_paper and section.plan.preset == "paper":
        sentences.append("The paper has no such figure.")
    return [*sentences, section.progress] if section.progress else sentences


def numbers(section: Section) -> list[list[str]]:
    """Return a section's points as a table, header first."""
    rows = [descriptions.facts(section, point) for point in section.points]
    head = ["" if name == "line" else name for name in rows[0]]
    return [head, *(list(row.values()) for row in rows)]


def _how_to_read(section: Section) -> str:
    label, better = section.metric.label, section.metric.direction
    several = any(len(point.tests) > 1 for point in section.points)
    if section.plan.shows == "grid":
        return (
            f"Test {label} of the best epoch, and the number of that epoch. Blue is good, yellow poor, "
            "red diverged, hollow missing. A frame marks the best test score of each cell or version."
        )
    if section.plan.shows == "curve":
        bands = " Mean over seeds; the band is one standard deviation to each side." if several else ""
        return f"Test {label} of the best epoch; {better} is better. Red crosses diverged.{bands}"
    return learning_caption(section)


def learning_caption(section: Section) -> str:
    """Return how to read learning curves."""
    each = " Each seed has its own line." if any(len(point.tests) > 1 for point in section.points) else ""
    label, better = section.metric.label, section.metric.direction
    chosen_by = kind_of(section.points[0].config.kind).task.chosen_by
    best = f"the epoch with the lowest {chosen_by}" if chosen_by else "the best epoch"
    return (
        f"Validation {label} after each epoch; {better} is better. The mark is {best}, whose "
        f"weights are tested. Values far off, such as those of the first epochs, are not shown.{each}"
    )
