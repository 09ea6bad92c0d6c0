"""Show what a trained model does: music it composed, text it wrote, forecasts, and how it classifies."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from markupsafe import Markup

from rru.files import FileError, read_file
from rru.kinds import kind_of
from rru.report import descriptions
from rru.report.confusion import confusion
from rru.report.fans import Picture
from rru.report.forecasts import forecasts
from rru.report.gather import RunRecord

MEDIA = {".png": ("image/png", 2 << 20), ".wav": ("audio/wav", 12 << 20)}  # type, maximum bytes
MAX_MEDIA = 8
MAX_TEXT = 4000  # characters of a text


class Medium(NamedTuple):
    """A picture or sound: its file name without and with its ending, its type, and its content as an address."""

    piece: str
    name: str
    type: str
    content: str


class Media(NamedTuple):
    """The pictures and sounds in a run's folder, and what could not be read."""

    files: Sequence[Medium] = ()
    problems: Sequence[str] = ()


@dataclass(frozen=True)
class Sample:
    """What the model of one run made.

    **Arguments:**

    - `run`: the run.
    - `scores`: sentences on further test scores.
    - `pictures`: of its test results.
    - `pieces`: the pictures and sounds of each piece of music that it composed, by name.
    """

    run: RunRecord
    scores: str
    pictures: Sequence[Picture]
    pieces: Mapping[str, Sequence[Medium]]


def sample(run: RunRecord, media: Media, *, pictures: bool = True) -> Sample:
    """Return what a run has to show; without pictures of its test results if these are not wanted."""
    draw = PICTURES.get(kind_of(run.known.kind).figure) if run.known is not None and run.counts and pictures else None
    drawn = draw(run.details) if draw else []
    pieces: dict[str, list[Medium]] = {}
    for medium in media.files:
        pieces.setdefault(medium.piece, []).append(medium)
    return Sample(run, " ".join(descriptions.other_scores(run)), drawn, pieces)


def media_of(run: RunRecord) -> Media:
    """Read the pictures and sounds in a run's folder."""
    files, problems = [], []
    for path in run.music[:MAX_MEDIA]:
        kind, limit = MEDIA[path.suffix]
        try:
            content = base64.b64encode(read_file(path, limit)).decode()
        except (FileError, OSError) as error:
            problems.append(str(error))
        else:
            files.append(Medium(path.stem, path.name, kind, f"data:{kind};base64,{content}"))
    if len(run.music) > MAX_MEDIA:
        problems.append(f"music/ has {len(run.music)} files; the first {MAX_MEDIA} are shown")
    return Media(files, problems)


def written(details: Mapping[str, Any]) -> list[Picture]:
    """Return the text that a model wrote, after its prompt; empty if there is none."""
    prompt, text = details.get("prompt"), details.get("written")
    if not isinstance(prompt, str) or not isinstance(text, str) or not text.strip():
        return []
    drawn = Markup('<p class="written"><span>{}</span>{}</p>').format(prompt[:MAX_TEXT], text[:MAX_TEXT])
    return [Picture("Text by the model", drawn, "Grey is the beginning of the test text; the model wrote the rest.")]


PICTURES: dict[str, Callable[[Mapping[str, Any]], list[Picture]]] = {
    "text": written,
    "confusion matrix": confusion,
    "forecasts": forecasts,
}
"""What draws the pictures of a run's details, by the name that its kind of data gives."""
