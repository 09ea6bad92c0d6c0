"""Drawing helpers: SVG elements with all text and attributes escaped, ticks and colours."""

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

# Good is blue and poor is yellow, as in the paper's figures; the steps between differ in lightness too.
COLOURS = ((31, 63, 143), (46, 116, 181), (79, 167, 168), (169, 201, 106), (246, 220, 79))
FAILED = "#c4262e"
CROSS = "\N{MULTIPLICATION SIGN}"


def element(name: str, *content: str, **attributes: object) -> Markup:
    """Return an SVG element. Attribute names use `_` for `-`; attributes that are None are left out.

    Content that is not `Markup` is escaped.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(escape(part) for part in content)
    return Markup(f"<{name}{written}>{inside}</{name}>")


def picture(width: int, height: int, *content: Markup, label: str, kind: str) -> Markup:
    """Return a picture with its description. The arrow keys move between its marks, the elements with a `data-tip`."""
    attributes = {
        "width": width,
        "viewBox": f"0 0 {width} {height}",
        "class": kind,
        "role": "img",
        "tabindex": "0",
    }
    return element("svg", *content, aria_label=label, **attributes)


def colour(part: float) -> str:
    """Return the colour of a value from 0 (good) to 1 (poor)."""
    place = min(max(part, 0.0), 1.0) * (len(COLOURS) - 1)
    index = min(int(place), len(COLOURS) - 2)
    mixed = (
        round(low + (high - low) * (place - index))
        for low, high in zip(COLOURS[index], COLOURS[index + 1], strict=True)
    )
    return "#" + "".join(f"{value:02x}" for value in mixed)


def ink(background: str) -> str:
    """Return black or white, whichever is easier to read on a background colour."""
    channels = [int(background[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    luminance = sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#000" if luminance > 0.179 else "#fff"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers between two bounds."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def quantile(values: Sequence[float], part: float) -> float:
    """Return a quantile of some values, without interpolation."""
    ranked = sorted(values)
    return ranked[min(int(part * len(ranked)), len(ranked) - 1)]


def _short(value: object) -> object:
    """Round coordinates to the precision of a screen."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
