"""The kinds of data: one module and one record for each. Everything above asks the record.

```python
from rru.kinds import kind_of

music = kind_of("music")
music.metric, music.commands, music.format.suffixes
```
"""

import sys
from pathlib import Path

from rru.data.own.formats import FORMATS
from rru.kinds.images import IMAGES
from rru.kinds.kind import Card, Kind, TrainedOn
from rru.kinds.language import BYTES, CHARACTERS, WORDS
from rru.kinds.music import MUSIC
from rru.kinds.sequences import SEQUENCES
from rru.kinds.series import SERIES
from rru.kinds.texts import REVIEWS, TEXTS
from rru.nn.options import Declared
from rru.suggestions import choice
from rru.tasks import TASKS

__all__ = ["KINDS", "Card", "Kind", "TrainedOn", "kind_of", "reading_options", "register_kind"]

KINDS: dict[str, Kind] = {}
"""All kinds of data, by name."""
FILES: dict[str, Path] = {}
"""The file that registered each kind, by name."""


def register_kind(kind: Kind) -> Kind:
    """Add a kind of data and return it; raise ValueError if there is another one of this name."""
    if KINDS.get(kind.name, kind) is not kind:
        raise ValueError(f"kind {kind.name!r} is registered already")
    if mismatch := set(kind.format.options) ^ set(kind.declared_options):
        raise ValueError(f"kind {kind.name!r}: options of format and kind must be the same, differ in {mismatch}")
    KINDS[kind.name], FORMATS[kind.name], TASKS[kind.name] = kind, kind.format, kind.task
    FILES[kind.name] = Path(sys._getframe(1).f_code.co_filename)
    return kind


def kind_of(name: str) -> Kind:
    """Return a kind of data; raise ValueError if there is none of this name."""
    return KINDS[choice("kind", name, KINDS)]


def reading_options() -> dict[str, Declared]:
    """Return the options of reading users' own data, of all kinds, by name."""
    return {name: option for kind in KINDS.values() for name, option in kind.declared_options.items()}


for _kind in (WORDS, CHARACTERS, BYTES, MUSIC, REVIEWS, TEXTS, IMAGES, SEQUENCES, SERIES):
    register_kind(_kind)
