"""Divide a user's data into training, validation and test parts, as a function of its content alone."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from rru.data.errors import DataError

HELD_OUT = 0.1  # the share of the data that validation and test have each
NEAR = 1 << 16  # bytes: how far a cut may move to the end of a line, in a text of more than fifty times as many
NEAR_SHARE = 50  # in a smaller text, a fiftieth of it
MAX_CHARACTER = 4  # bytes, in UTF-8


def by_content(keys: Sequence[str], missing: Sequence[str], path: Path, what: str) -> list[str]:
    """Return the split of each item. Items with the same key, such as copies, come into the same split.

    **Arguments:**

    - `keys`: one for each item, a hash of its content.
    - `missing`: the splits to hold out, a tenth of the items each: `valid` and `test`, unless the user gave them.
    - `path`, `what`: named in the error if there are too few items.
    """
    counts = Counter(keys)
    if len(counts) <= len(missing):
        more = f"at least {len(missing) + 1} different {what}, to train on and to hold out"
        raise DataError(path, f"must have {more}; got {len(counts)}")
    split_of: dict[str, str] = {}
    waiting = sorted(counts)
    for number, split in enumerate(missing):
        wanted, have, reserved = max(round(HELD_OUT * len(keys)), 1), 0, len(missing) - number
        while have < wanted and len(waiting) > reserved:  # the splits that follow need one each
            key = waiting.pop(0)
            split_of[key] = split
            have += counts[key]
    return [split_of.get(key, "train") for key in keys]


def stratified(keys: Sequence[str], labels: Sequence[str], missing: Sequence[str]) -> list[str]:
    """Return the split of each item, a tenth of every class in each split that is missing.

    A class with too few different items to be held out is only trained on.
    """
    splits = ["train"] * len(keys)
    # copies with different labels must not come into different splits either: the first label decides
    class_of = dict(zip(reversed(keys), reversed(labels), strict=True))
    by_class: dict[str, list[int]] = {}
    for item, key in enumerate(keys):
        by_class.setdefault(class_of[key], []).append(item)
    for items in by_class.values():
        if len({keys[item] for item in items}) > len(missing):
            for item, split in zip(items, by_content([keys[item] for item in items], missing, Path(), ""), strict=True):
                splits[item] = split
    return splits


def by_position(path: Path, size: int, missing: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the first and last byte of each part of a text: first training, then validation, then test.

    A cut is moved to the end of a line, if one is near, or else to the end of a word or character.
    """
    shares = [HELD_OUT * number for number in range(len(missing), 0, -1)]
    near = min(NEAR, max(size // NEAR_SHARE, MAX_CHARACTER))
    cuts = [0, *(_cut(path, size - round(size * share), near) for share in shares), size]
    return dict(zip(("train", *missing), pairwise(cuts), strict=True))


def _cut(path: Path, position: int, near: int) -> int:
    with path.open("rb") as file:
        file.seek(position)
        after = file.read(near)
    for mark in (b"\n", b" "):
        if (at := after.find(mark)) >= 0:
            return position + at + 1
    return position + next((at for at, byte in enumerate(after[:MAX_CHARACTER]) if byte & 0xC0 != 0x80), 0)


def described(given: Collection[str], how: str) -> str:
    """Describe how data was divided: `how`, except for the splits that the user gave."""
    named = " and ".join(split for split in ("valid", "test") if split in given)
    if not named:
        return how
    return f"{named} as given" if "and" in named else f"{named} as given, the rest {how}"


def slashed(counts: Iterable[int]) -> str:
    """Return the counts of train, valid and test for a summary: `800 / 100 / 100`."""
    return " / ".join(f"{count:,}" for count in counts)


def copy_notes(keys: Mapping[str, Sequence[str]], what: str, *, transposed: bool = False) -> list[str]:
    """Return what the user should know about copies among items.

    **Arguments:**

    - `keys`: of all items at each place that the user gave, by the split it is for; splits may be held out of `train`.
    - `what`: the items, such as `files`.
    - `transposed`: whether an item in another key is a copy too.
    """
    alike = f"the same as another, or transposed; such {what}" if transposed else "copies of others; copies"
    also = "in an earlier split, or the same transposed" if transposed else "in an earlier split"
    notes, seen = list[str](), set[str]()
    for split, some in keys.items():
        if split == "train" and len(keys) < 3 and (copies := len(some) - len(set(some))):
            notes.append(f"{copies:,} {what} are {alike} are in one split together")
        if across := sum(key in seen for key in some):
            notes.append(f"{across:,} of {len(some):,} {what} of {split} are also {also}: scores look better")
        seen.update(some)
    return notes
