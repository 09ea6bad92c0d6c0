"""Suggestions for misspelt names."""

import difflib
from collections.abc import Iterable


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to `word`, or None."""
    names = list(known)
    matches = difflib.get_close_matches(str(word), names, n=1)
    matches += difflib.get_close_matches(str(word).lower().replace("_", "-"), names, n=1)
    return matches[0] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'jsb'?` for the end of an error; an empty string if no known name is similar."""
    match = closest(word, known)
    return f"; did you mean {match!r}?" if match else ""


def choice(what: str, name: str, known: Iterable[str]) -> str:
    """Return the name if it is known; else raise ValueError, which lists the known names."""
    names = list(known)
    if name not in names:
        raise ValueError(f"{what} must be one of {', '.join(names)}; got {name!r}{did_you_mean(name, names)}")
    return name


def known_names(word: str, known: Iterable[str]) -> str:
    """Return the known names for the end of an error: `did you mean 'lstm'? Known: rru, lstm`."""
    names = list(known)
    match = closest(word, names)
    return (f"did you mean {match!r}? " if match else "") + f"Known: {', '.join(names)}"
