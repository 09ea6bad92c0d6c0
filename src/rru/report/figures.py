"""Figures of plans: pictures, what to know of them, and their numbers as a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rru.report import charts, heatmaps, words
from rru.report.heatmaps import Panel
from rru.report.results import Section


@dataclass(frozen=True)
class Figure:
    """A figure.

    **Arguments:**

    - `heading`, `caption`: what it is, and how to read it.
    - `panels`: its pictures.
    - `legend`: what its colours stand for.
    - `numbers`: rows of a table that says the same; the first is the head.
    """

    heading: str
    caption: Sequence[str]
    panels: Sequence[Panel]
    legend: Sequence[Markup]
    numbers: Sequence[Sequence[str]]


def figure(section: Section) -> Figure:
    """The figure of a grid, a curve or convergence; without pictures if there is nothing to draw."""
    if section.shows == "grid":
        panels, legend = heatmaps.panels(section)
        caption = [
            f"Test {section.metric.label} of the best epoch and how many epochs it took. Blue is good, yellow poor, "
            "red failed, hollow missing; a frame is around the best test of each cell or version.",
        ]
    else:
        drawn = charts.curve(section) if section.shows == "curve" else charts.convergence(section)
        panels = [Panel("", "", drawn)] if drawn else []
        legend = charts.legend(section)
        caption = [_reading(section)]
    if not section.in_paper:
        caption.append("The paper has no such figure.")
    if section.progress:
        caption.append(section.progress)
    return Figure(section.heading, caption, panels, legend, numbers(section))


def numbers(section: Section) -> list[list[str]]:
    """A section's points as a table, the head first."""
    rows = [words.facts(section, point) for point in section.points]
    head = ["" if name == "line" else name for name in rows[0]]
    return [head, *(list(row.values()) for row in rows)]


def _reading(section: Section) -> str:
    better = "higher" if section.metric.higher_is_better else "lower"
    several = any(len(point.tests) > 1 for point in section.points)
    if section.shows == "curve":
        bands = " Mean over seeds; the band is one standard deviation to each side." if several else ""
        return f"Test {section.metric.label} of the best epoch; {better} is better. A red cross is a failed run.{bands}"
    each = " Each seed has a line of its own." if several else ""
    return (
        f"Validation {section.metric.label} after each epoch; {better} is better. The mark is the best epoch, whose "
        f"weights are tested. What lies far off, as the first epochs do, is cut.{each}"
    )
