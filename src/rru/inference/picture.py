"""Draw a piece as a piano roll, with prompt and composed part in different colours."""

import io

import numpy as np

from rru.data import LOWEST_NOTE
from rru.extras import extra
from rru.inference.music import Piece, notes

STEP, KEY = 14, 7  # pixels
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 40
PAPER, LINE, BAR, INK = "#ffffff", "#eceff3", "#c5ccd6", "#39424e"
PROMPT, COMPOSED = "#8793a3", "#1f6feb"
BLACK_KEYS = (1, 3, 6, 8, 10)  # semitones above C


def picture(piece: Piece) -> bytes:
    """Return a picture of a piece, as the bytes of a PNG file."""
    with extra("train"):
        from PIL import Image, ImageDraw
    sounding = np.flatnonzero(piece.roll.any(0))
    low, high = (int(sounding[0]), int(sounding[-1])) if len(sounding) else (39, 51)
    low, high = max(low - 2, 0), min(high + 2, piece.roll.shape[1] - 1)
    width, height = LEFT + STEP * len(piece.roll) + RIGHT, TOP + KEY * (high - low + 1) + BOTTOM
    image = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(image)
    bottom = height - BOTTOM
    for key in range(low, high + 1):
        note, y = LOWEST_NOTE + key, bottom - KEY * (key - low)
        if note % 12 == 0:
            pen.line([(LEFT, y), (width - RIGHT, y)], fill=BAR)
            pen.text((6, y - KEY - 3), f"C{note // 12 - 1}", fill=INK)
        elif note % 12 in BLACK_KEYS:
            pen.rectangle([LEFT, y - KEY, width - RIGHT, y], fill=LINE)
    for step in range(0, len(piece.roll) + 1, piece.steps_per_bar):
        x = LEFT + STEP * step
        pen.line([(x, TOP), (x, bottom)], fill=BAR)
        if step < len(piece.roll):
            pen.text((x + 2, bottom + 3), str(step // piece.steps_per_bar + 1), fill=INK)
    for key, start, length in notes(piece.roll):
        y, end, split = bottom - KEY * (key - low), start + length, piece.prompt
        for first, last, colour in ((start, min(end, split), PROMPT), (max(start, split), end, COMPOSED)):
            if first < last:
                box = [LEFT + STEP * first + 1, y - KEY + 1, LEFT + STEP * last - 1, y - 1]
                pen.rounded_rectangle(box, radius=2, fill=colour)
    x = LEFT
    for colour, text in ((PROMPT, "prompt"), (COMPOSED, "composed")):
        pen.rounded_rectangle([x, height - 16, x + 12, height - 8], radius=2, fill=colour)
        pen.text((x + 17, height - 18), text, fill=INK)
        x += 90
    content = io.BytesIO()
    image.save(content, format="PNG", optimize=True)
    return content.getvalue()
