"""Draw the curves of `python -m benchmarks.texts`: validation loss against processor time.

    python -m benchmarks.texts_chart docs/lab/texts.jsonl docs/texts.svg

Of several runs of a model of one size it draws the one with the lowest loss, if that is low enough for the chart.
"""

import argparse
import json
import math
from itertools import accumulate
from pathlib import Path

from markupsafe import Markup

from rru.report.charts import path, shape_at
from rru.report.svg import element

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 64, 170, 18, 48
SECONDS = {15: "15 s", 30: "30 s", 60: "1 min", 120: "2 min", 300: "5 min", 600: "10 min", 1800: "30 min"}
HIGHEST = 2.1  # nats per character; the first points of some curves are higher
NAMES = {"rru": "RRU", "lstm": "nn.LSTM", "mingru": "minGRU", "nanogpt": "nanoGPT", "nanogpt-gpu": "nanoGPT, GPU's"}
COLOURS = {"rru": "#1257a6", "lstm": "#b3541e", "mingru": "#4c7a34", "nanogpt": "#7a4fa3", "nanogpt-gpu": "#9b7cbd"}
STYLE = (
    "text { font: 13px system-ui, sans-serif; fill: #333; stroke: #fff; stroke-width: 4px; paint-order: stroke }"
    ".line { fill: none; stroke-width: 2.2 }"
)
MIN_GAP = 17  # between the names of curves


def main() -> None:
    """Draw the chart of a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("curves", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    curves = [json.loads(line) for line in options.curves.read_text().splitlines()]
    options.picture.write_text(chart(best_of_each_size(curves)) + "\n")


def best_of_each_size(curves: list[dict]) -> list[dict]:
    """Return the run with the lowest loss of each model and size, but those that never get onto the chart."""
    best: dict[tuple[str, str], dict] = {}
    for curve in curves:
        size = curve["model"], f"{curve['parameters']:.1e}"
        if size not in best or lowest(curve) < lowest(best[size]):
            best[size] = curve
    return [curve for curve in best.values() if lowest(curve) <= HIGHEST]


def lowest(curve: dict) -> float:
    """Return the lowest loss of a curve."""
    return min(loss for _, loss in curve["points"])


def chart(curves: list[dict]) -> str:
    """Return the chart as SVG."""
    seconds = [second for curve in curves for second, _ in curve["points"]]
    left, right = math.log(min(*seconds, *SECONDS)), math.log(max(seconds))
    low, high = math.floor(20 * min(map(lowest, curves))) / 20 - 0.1, HIGHEST

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
    curves = sorted(curves, key=lowest)
    marks = [[place(second, loss) for second, loss in curve["points"] if loss <= HIGHEST] for curve in curves]
    for curve, places in zip(curves, marks, strict=True):
        parts += drawn(curve, places)
    ended = sorted(zip(curves, marks, strict=True), key=lambda each: each[1][-1][1])
    for (curve, places), y in zip(ended, spread([places[-1][1] for _, places in ended]), strict=True):
        parts += named(curve, places[-1], y)
    size = f"0 0 {WIDTH} {HEIGHT}"
    label = "Validation loss on tiny Shakespeare against processor time"
    return element("svg", *parts, xmlns="http://www.w3.org/2000/svg", viewBox=size, role="img", aria_label=label)


def drawn(curve: dict, places: list[tuple[float, float]]) -> list[Markup]:
    """Draw a curve with marks."""
    colour, index = COLOURS[curve["model"]], list(NAMES).index(curve["model"])
    marks = [element("g", shape_at(index, *each, ""), fill=colour) for each in places]
    return [element("path", d=path(places), stroke=colour, class_="line"), *marks]


def spread(ys: list[float]) -> list[float]:
    """Return heights near the given ones, which are sorted, with gaps of at least `MIN_GAP`."""
    downwards = list(accumulate(ys, lambda above, y: max(y, above + MIN_GAP)))
    upwards = list(accumulate(reversed(ys), lambda below, y: min(y, below - MIN_GAP)))
    return [(down + up) / 2 for down, up in zip(downwards, reversed(upwards), strict=True)]


def named(curve: dict, end: tuple[float, float], y: float) -> list[Markup]:
    """Write the name of a curve at the right, and a line to it from the curve's end."""
    left = WIDTH - RIGHT
    name = f"{NAMES[curve['model']]} {curve['parameters'] / 1e6:.2g}M: {lowest(curve):.2f}"
    line = f"M{end[0] + 7:.1f} {end[1]:.1f}L{left:.1f} {y:.1f}H{left + 8}"
    return [
        element("path", d=line, stroke=COLOURS[curve["model"]], stroke_dasharray="1 3", fill="none"),
        element("text", name, x=left + 12, y=y + 4, style=f"fill: {COLOURS[curve['model']]}"),
    ]


if __name__ == "__main__":
    main()
