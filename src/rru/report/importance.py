"""Draw the importance of each setting in a study."""

from collections.abc import Mapping

from markupsafe import Markup

from rru.report import svg

WIDTH, ROW, NAMES, VALUES, TOP = 640, 30, 190, 60, 50  # pixels


def figure(importances: Mapping[str, float], title: str) -> Markup:
    """Return an SVG bar chart with a bar for each setting, most important first.

    **Arguments:**

    - `importances`: the importance of each setting by name, summing to 1.
    - `title`: the title of the figure.
    """
    parts = [
        svg.element("title", title),
        svg.element("rect", width="100%", height="100%", fill="white"),
        svg.element("text", title, x=10, y=25, font_size=15),
    ]
    for row, (name, value) in enumerate(sorted(importances.items(), key=lambda item: -item[1])):
        top, length = TOP + ROW * row, (WIDTH - NAMES - VALUES) * value
        parts.append(svg.element("text", name, x=NAMES - 10, y=top + 15, text_anchor="end"))
        parts.append(svg.element("rect", x=NAMES, y=top, width=max(length, 1), height=ROW - 8, fill="#4477aa"))
        parts.append(svg.element("text", f"{value:.2f}", x=NAMES + length + 8, y=top + 15))
    attributes = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {WIDTH} {TOP + ROW * len(importances) + 10}"}
    return svg.element("svg", *parts, **attributes, font_family="sans-serif", font_size=13)
