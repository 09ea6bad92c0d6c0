"""Draw the curves of `python -m benchmarks.texts`: validation loss against processor time, both of all models.

python -m benchmarks.texts_chart docs/lab/texts.jsonl docs/texts.svg
"""

import argparse
import json
import math
from pathlib import Path

from markupsafe import Markup

from rru.report.charts import path, shape_at
from rru.report.svg import element

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 64, 158, 18, 48
SECONDS = {15: "15 s", 30: "30 s", 60: "1 min", 120: "2", 300: "5", 600: "10", 1200: "20", 1800: "30 min"}
HIGHEST = 2.1  # nats per character; the first points of some curves are higher
NAMES = {"rru": "RRU", "lstm": "nn.LSTM", "mingru": "minGRU", "nanogpt": "nanoGPT", "nanogpt-gpu": "nanoGPT, GPU's"}
COLOURS = {"rru": "#1257a6", "lstm": "#b3541e", "mingru": "#4c7a34", "nanogpt": "#7a4fa3", "nanogpt-gpu": "#9b7cbd"}
STYLE = "text { font: 13px system-ui, sans-serif; fill: #333 } .line { fill: none; stroke-width: 2.2 }"
MIN_GAP = 16  # between the names at the ends of curves


def main() -> None:
    """Draw the chart of a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("curves", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    curves = [json.loads(line) for line in options.curves.read_text().splitlines()]
    options.picture.write_text(chart(curves) + "\n")


def chart(curves: list[dict]) -> str:
    """Return the chart as SVG."""
    seconds = [second for curve in curves for second, _ in curve["points"]]
    lowest = min(loss for curve in curves for _, loss in curve["points"])
    left, right = math.log(min(*seconds, *SECONDS)), math.log(max(seconds))
    low, high = math.floor(20 * lowest - 0.4) / 20, HIGHEST

    def place(second: float, loss: float) -> tuple[float, float]:
        across = (math.log(second) - left) / (right - left)
        return LEFT + (WIDTH - LEFT - RIGHT) * across, TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / (high - low)

    parts = [element("style", STYLE), element("rect", width=WIDTH, height=HEIGHT, rx=8, fill="#fff")]
    bottom = HEIGHT - BOTTOM
    for number in range(math.ceil(10 * low - 1e-6), math.floor(10 * high + 1e-6) + 1):
        y = place(60, number / 10)[1]
        parts.append(element("path", d=f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}", stroke="#e3e3e3"))
        parts.append(element("text", f"{number / 10:.1f}", x=LEFT - 8, y=y + 4, text_anchor="end"))
    for second, name in SECONDS.items():
        if math.log(second) <= right:
            parts.append(element("text", name, x=place(second, low)[0], y=bottom + 20, text_anchor="middle"))
    parts.append(element("path", d=f"M{LEFT} {bottom}H{WIDTH - RIGHT}", stroke="#999"))
    middle = (TOP + bottom) / 2
    upwards = "validation loss, nats per character"
    parts.append(element("text", upwards, x=16, y=middle, text_anchor="middle", transform=f"rotate(-90 16 {middle})"))
    across = "processor time of training, one thread"
    parts.append(element("text", across, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 8, text_anchor="middle"))
    taken: list[float] = []
    for curve in sorted(curves, key=lambda curve: curve["points"][-1][1]):
        parts += drawn(curve, place, taken)
    size = f"0 0 {WIDTH} {HEIGHT}"
    label = "Validation loss on tiny Shakespeare against processor time"
    return element("svg", *parts, xmlns="http://www.w3.org/2000/svg", viewBox=size, role="img", aria_label=label)


def drawn(curve: dict, place, taken: list[float]) -> list[Markup]:
    """Draw a curve with marks, and its name beside its end, away from the names that are there."""
    colour, index = COLOURS[curve["model"]], list(NAMES).index(curve["model"])
    places = [place(second, loss) for second, loss in curve["points"] if loss <= HIGHEST]
    x, y = places[-1]
    while any(abs(y - other) < MIN_GAP for other in taken):
        y += 1
    taken.append(y)
    name = f"{NAMES[curve['model']]} {curve['parameters'] / 1e6:.2g}M: {curve['points'][-1][1]:.2f}"
    return [
        element("path", d=path(places), stroke=colour, class_="line"),
        *(element("g", shape_at(index, *each, ""), fill=colour) for each in places),
        element("text", name, x=x + 10, y=y + 4, style=f"fill: {colour}"),
    ]


if __name__ == "__main__":
    main()
