"""Show objects in notebooks: pictures, sound and tables as HTML. Everything is inside the page; nothing is loaded."""

import base64
import html
from collections.abc import Mapping, Sequence


def image(png: bytes) -> str:
    """Return a picture, from the bytes of a PNG file."""
    return f'<img src="data:image/png;base64,{base64.b64encode(png).decode()}" style="max-width: 100%">'


def audio(wav: bytes) -> str:
    """Return a player of sound, from the bytes of a WAV file."""
    source = f"data:audio/wav;base64,{base64.b64encode(wav).decode()}"
    return f'<audio controls src="{source}" style="display: block"></audio>'


def text(content: str) -> str:
    """Return a text as it is, with its line ends."""
    return f'<pre style="white-space: pre-wrap">{html.escape(content)}</pre>'


def facts(rows: Mapping[str, str]) -> str:
    """Return a table of names and values."""
    cells = '<tr><th style="text-align: left">{}</th><td style="text-align: left">{}</td></tr>'
    lines = [cells.format(html.escape(name), html.escape(value)) for name, value in rows.items()]
    return f"<table>{''.join(lines)}</table>"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table of texts; the first row is its head, the first column has names."""
    head, *rest = rows
    lines = ["".join(f"<th>{html.escape(cell)}</th>" for cell in head)]
    for name, *cells in rest:
        numbers = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        lines.append(f'<th style="text-align: left">{html.escape(name)}</th>{numbers}')
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
