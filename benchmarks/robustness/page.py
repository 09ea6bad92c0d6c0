"""Draw the scores as heat maps: one for each problem, with a row for each contender and a column for each rate."""

import statistics

from markupsafe import Markup

from benchmarks.robustness import summary
from benchmarks.robustness.summary import Results
from rru.report import formatting, svg
from rru.report.page import page_style

LEFT, WIDE, HIGH, BELOW = 96, 54, 30, 34

STYLE = """
.maps svg { width: 100%; height: auto; margin-top: 8px; }
.maps text { font: 11px var(--sans); fill: var(--ink); }
.maps text.value { fill: inherit; }
.maps .best { stroke: var(--frame); stroke-width: 2.5; }
pre { overflow-x: auto; font-size: 0.8rem; }
"""


def render(results: Results) -> str:
    """Return the page: the tables, then the heat maps. It loads nothing else."""
    page = Markup(
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Robustness</title>'
        "<style>{}</style><header><h1>Who learns what, at which rate</h1></header><main>"
        '<p class="about">Colours show the median over layers and clipping: blue is the best score of the problem, '
        "yellow is chance. A cross marks settings that are stuck at chance. The frame is the best.</p>"
        '<div class="cards maps">{}</div><section><h2>Comparison</h2><pre>{}</pre></section></main></html>'
    )
    cards = Markup("").join(_card(results, number) for number in range(len(results.problems)))
    return page.format(Markup(page_style() + STYLE), cards, summary.text(results)) + "\n"


def _card(results: Results, number: int) -> Markup:
    problem = results.problems[number]
    chance = formatting.score(results.chance[problem.name])
    return Markup('<div class="card"><h3>{}</h3><p class="about">Predict {}. {}, chance {}.</p>{}</div>').format(
        problem.name, problem.about, problem.loss.name.capitalize(), chance, _map(results, problem.name)
    )


def _map(results: Results, problem: str) -> Markup:
    rates, contenders = results.rates, results.contenders
    scores = {
        (row, column): statistics.median(group)
        for row, contender in enumerate(contenders)
        for column, rate in enumerate(rates)
        if (group := results.of_rate(problem, contender, rate))
    }
    best = min(scores.values())
    squares = [_square(results, problem, place, score) for place, score in scores.items()]
    frames = [_box(place, 1.5, fill="none", class_="best") for place, score in scores.items() if score == best]
    bottom = HIGH * len(contenders)
    labels = [
        *(svg.element("text", name, x=LEFT - 6, y=HIGH * (row + 0.5) + 4, text_anchor="end")
          for row, name in enumerate(contenders)),
        *(svg.element("text", f"{rate:g}", x=LEFT + WIDE * (column + 0.5), y=bottom + 14, text_anchor="middle")
          for column, rate in enumerate(rates)),
        svg.element("text", "learning rate", x=LEFT + WIDE * len(rates) / 2, y=bottom + 29, text_anchor="middle"),
    ]  # fmt: skip
    spoken = f"{problem}: scores of {', '.join(contenders)} by learning rate. The best scores are in the table below."
    size = LEFT + WIDE * len(rates), bottom + BELOW
    return svg.picture(*size, *squares, *frames, *labels, label=spoken, kind="map")


def _square(results: Results, problem: str, place: tuple[int, int], score: float) -> Markup:
    fill = svg.colour(results.gap(problem, score))
    (row, column), ink = place, svg.ink(fill)
    mark = f" {svg.CROSS}" if results.is_stuck(problem, score) else ""
    text = svg.element(
        "text",
        _short(score) + mark,
        x=LEFT + WIDE * (column + 0.5),
        y=HIGH * (row + 0.5) + 4,
        text_anchor="middle",
        fill=ink,
        class_="value",
        style=f"fill: {ink}",
    )
    return svg.element("g", _box(place, 0.75, fill=fill), text)


def _box(place: tuple[int, int], gap: float, **attributes: object) -> Markup:
    row, column = place
    corner = {"x": LEFT + WIDE * column + gap, "y": HIGH * row + gap}
    return svg.element("rect", **corner, width=WIDE - 2 * gap, height=HIGH - 2 * gap, **attributes)


def _short(score: float) -> str:
    return f"{score:.1f}" if score >= 10 else f"{score:.2f}" if score >= 0.1 else f"{score:.1g}"
