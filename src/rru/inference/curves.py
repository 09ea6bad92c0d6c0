"""Draw the learning curve of a run: the scores after each epoch."""

import html
import math
from collections.abc import Sequence
from pathlib import Path

from rru.inference.fans import round_values
from rru.inference.output import check_free, write_files
from rru.training.run_files import Epoch

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 280, 64, 16, 34, 40  # pixels
LINE, INK, TRAINING, VALIDATION = "#e3e7ec", "#39424e", "#8793a3", "#1f6feb"
MAX_LABELS = 8  # epochs that are named below the curve
Points = list[tuple[int, float]]
"""Epochs and the value after each."""


class Picture:
    """A picture that notebooks show; `str` gives the SVG.

    **Arguments:** `svg`: its source; `title`: what it shows.
    """

    def __init__(self, svg: str, title: str) -> None:
        self.svg, self.title = svg, title

    def save(self, path: Path | str, *, force: bool = False) -> Path:
        """Write an .svg file and return its path. `force` overwrites it."""
        path = Path(path)
        if path.suffix.lower() != ".svg":
            raise ValueError(f"output must be an .svg file, got {path}")
        if not force:
            check_free([path], "choose another name, or overwrite it with force=True")
        write_files({path: self.svg.encode()})
        return path

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Picture({self.title!r})"


def curve(history: Sequence[Epoch], score: str, title: str) -> Picture:
    """Draw how a score changes; of `loss` also that of the training steps.

    **Arguments:** `history`: the epochs of a run; `score`: one of the validation scores; `title`: what was trained.
    """
    known = list(dict.fromkeys(name for epoch in history for name in epoch.validation))
    if not known:
        raise ValueError("there is no finished epoch to draw")
    if score not in known:
        raise ValueError(f"score must be one of {', '.join(known)}; got {score!r}")
    lines = {"validation": [(epoch.epoch, epoch.validation[score]) for epoch in history if score in epoch.validation]}
    if score == "loss":
        trained = [(epoch.epoch, epoch.train_loss) for epoch in history if epoch.train_loss is not None]
        lines |= {"training": trained} if trained else {}
    return Picture(_svg(lines, f"{title}: {score} by epoch"), f"{title}: {score} by epoch")


def _svg(lines: dict[str, Points], title: str) -> str:
    points = [point for line in lines.values() for point in line]
    last, values = max(epoch for epoch, _ in points), [value for _, value in points]
    room = 0.05 * (max(values) - min(values)) or 0.05 * abs(values[0]) or 1.0
    low, high = min(values) - room, max(values) + room

    def at(epoch: float, value: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * epoch / max(last, 1)
        return round(x, 1), round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low), 1)

    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{html.escape(title)}</text>']
    for value in round_values(low, high):
        x, y = at(0, value)
        parts.append(f'<path d="M{x} {y}H{WIDTH - RIGHT}" stroke="{LINE}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{value:.6g}</text>')
    for epoch in range(0, last + 1, math.ceil((last + 1) / MAX_LABELS)):
        parts.append(f'<text x="{at(epoch, low)[0]}" y="{HEIGHT - 22}" text-anchor="middle">{epoch}</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = VALIDATION if name == "validation" else TRAINING
        places = [at(*point) for point in line]
        steps = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{steps}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in places]
        parts.append(f'<text x="{LEFT + 110 * number}" y="{HEIGHT - 4}" fill="{colour}">{name}</text>')
    style = f'font-family="sans-serif" font-size="12" fill="{INK}"'
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>'
