"""Draw the importance of each setting in a study."""

from collections.abc import Mapping
from xml.sax.saxutils import escape

_WIDTH, _ROW, _NAMES, _VALUES = 640, 30, 190, 60
_TOP = 50


def figure(importances: Mapping[str, float], title: str) -> str:
    """Return an SVG bar chart with a bar for each setting, most important first.

    **Arguments:**

    - `importances`: the importance of each setting by name, summing to 1.
    - `title`: the title of the figure.
    """
    height = _TOP + _ROW * len(importances) + 10
    full = _WIDTH - _NAMES - _VALUES
    rows = []
    for row, (name, value) in enumerate(sorted(importances.items(), key=lambda item: -item[1])):
        top = _TOP + _ROW * row
        rows += [
            f'<text x="{_NAMES - 10}" y="{top + 15}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{_NAMES}" y="{top}" width="{max(full * value, 1):.1f}" height="{_ROW - 8}" fill="#4477aa"/>',
            f'<text x="{_NAMES + full * value + 8:.1f}" y="{top + 15}">{value:.2f}</text>',
        ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            'font-family="sans-serif" font-size="13">',
            f"<title>{escape(title)}</title>",
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="10" y="25" font-size="15">{escape(title)}</text>',
            *rows,
            "</svg>\n",
        ]
    )
