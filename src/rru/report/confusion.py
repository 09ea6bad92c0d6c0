"""Confusion matrices: how often each class was taken for each."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from rru.report import svg
from rru.report.fans import Picture
from rru.report.gather import WORD
from rru.training.run_files import count

MAX_CLASSES = 40
LEFT, TOP, MAX_WIDTH, MIN_SIDE, MAX_SIDE = 110, 24, 360, 30, 64  # pixels: of all fields together, and of one
LETTER = 8  # pixels


def confusion(details: Mapping[str, Any]) -> list[Picture]:
    """Return the confusion matrix in a run's details; empty if there is none, or if it is not one."""
    names, rows = details.get("classes"), details.get("confusion")
    if not isinstance(names, list) or not isinstance(rows, list) or not 0 < len(names) == len(rows) <= MAX_CLASSES:
        return []
    classes, size = [str(name)[:WORD] for name in names], len(names)
    for row in rows:
        if not isinstance(row, list) or len(row) != size or any(count(value) is None for value in row):
            return []
    side = max(MIN_SIDE, min(MAX_SIDE, MAX_WIDTH // size))
    parts = [_axis(classes, side)]
    for truth, row in enumerate(rows):
        for guess, value in enumerate(row):
            share = value / (sum(row) or 1)
            tip = f"{classes[truth]} taken for {classes[guess]}\n{value:,} of {sum(row):,}: {share:.1%}"
            parts.append(_field(LEFT + side * guess, TOP + side * truth, side, value, share, tip))
    label = f"Confusion matrix of {size} classes; rows are the true classes, columns what the model said."
    drawn = svg.picture(LEFT + side * size + 4, TOP + side * size + 4, *parts, label=label, kind="confusion")
    right = sum(row[number] for number, row in enumerate(rows))
    total = sum(map(sum, rows))
    caption = (
        f"The {right:,} of {total:,} on the diagonal are right. Rows are the true classes, columns the predicted ones. "
        "Darker fields have a larger share of their row."
    )
    return [Picture("Confusion matrix", drawn, caption)]


def _axis(classes: Sequence[str], side: int) -> Markup:
    names = []
    for number, name in enumerate(classes):
        middle = side * number + side // 2
        names.append(svg.element("text", _short(name, 14), x=LEFT - 6, y=TOP + middle + 4, text_anchor="end"))
        names.append(
            svg.element("text", _short(name, side // LETTER), x=LEFT + middle, y=TOP - 7, text_anchor="middle")
        )
    return svg.element("g", *names)


def _field(x: int, y: int, side: int, value: int, share: float, tip: str) -> Markup:
    fill = svg.colour(1 - share) if value else "none"
    box = svg.element("rect", x=x, y=y, width=side - 1, height=side - 1, fill=fill, class_="cell", data_tip=tip)
    if not value:
        return box
    place = {"x": x + side // 2, "y": y + side // 2 + 4, "text_anchor": "middle"}
    text = str(value) if value < 10_000 else f"{value // 1000}k"
    return svg.element("g", box, svg.element("text", text, **place, fill=svg.ink(fill), class_="value"))


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
