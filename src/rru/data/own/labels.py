"""What labelled texts and sequences have in common: classes, a stratified split, and what is said about them."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own.splits import described, shared, stratified
from rru.data.sets import SPLITS

if TYPE_CHECKING:
    from rru.data.own import OwnData

MAX_CLASSES = 1000
SHOWN = 12  # classes whose counts the summary has
MIN_ITEMS = 10  # items


@dataclass(frozen=True)
class Items:
    """Labelled items: `contents` and `labels` of each, and how many were left out because something was missing."""

    contents: Sequence[Any]
    labels: Sequence[str]
    left_out: int = 0


@dataclass(frozen=True)
class SplitItems:
    """The items of a split."""

    contents: list[Any]
    labels: list[str]

    @property
    def classes(self) -> list[str]:
        """The different labels, in the order of numbers if they are numbers."""
        names = sorted(set(self.labels))
        try:
            return sorted(names, key=float)
        except ValueError:
            return names

    def indices(self, classes: Sequence[str]) -> NDArray[Any]:
        """Return the index of the class of each item, (N,)."""
        place = {name: number for number, name in enumerate(classes)}
        return np.array([place[label] for label in self.labels], np.min_scalar_type(len(classes)))


def divided(own: "OwnData", items: Mapping[str, Items], keys: Mapping[str, Sequence[str]]) -> dict[str, SplitItems]:
    """Return the items of each split: a tenth of every class is held out, unless the user gave the split."""
    _check_classes(own, items["train"])
    parts = {split: SplitItems([], []) for split in SPLITS}
    first = items["train"]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(first.labels))}
    chosen = stratified(keys["train"], [numbers[label] for label in first.labels], own.missing)
    for split, some in items.items():
        where = chosen if split == "train" else [split] * len(some.labels)
        for its, content, label in zip(where, some.contents, some.labels, strict=True):
            parts[its].contents.append(content)
            parts[its].labels.append(label)
    classes = set(parts["train"].labels)
    for split, part in parts.items():
        place = own.places.get(split, own.path)
        if new := sorted(set(part.labels) - classes):
            raise DataError(place, f"has the class {new[0]!r}, which is not in {own.path}")
        if not part.contents:
            raise DataError(place, f"has too few of each class: none is left for {split}; give a file with --{split}")
    return parts


def _check_classes(own: "OwnData", items: Items) -> None:
    counts = Counter(items.labels)
    where = f"column {own.options['label']!r}" if "label" in own.options else "the sub-folders"
    if len(items.labels) < MIN_ITEMS:
        raise DataError(own.path, f"must have at least {MIN_ITEMS} labelled items, got {len(items.labels)}")
    if len(counts) < 2:
        raise DataError(own.path, f"must have at least two classes in {where}, got only {next(iter(counts))!r}")
    if len(counts) > min(MAX_CLASSES, len(items.labels) // 2):
        many = f"{len(counts):,} different values in {len(items.labels):,} items"
        raise DataError(own.path, f"must have classes in {where}, got {many}; to predict numbers, use --target")


def about_labels(
    own: "OwnData", parts: Mapping[str, SplitItems], items: Mapping[str, Items], what: str, more: str
) -> dict[str, Any]:
    """Return the fields of `LabelFacts` but the statistics; the summary ends in `more`."""
    classes = parts["train"].classes
    balance = {split: Counter(parts[split].labels) for split in SPLITS}
    total = {name: sum(balance[split][name] for split in SPLITS) for name in classes}
    counted = ", ".join(f"{name} {total[name]:,}" for name in classes[:SHOWN]) + (
        ", ..." if len(classes) > SHOWN else ""
    )
    sizes = " / ".join(f"{len(parts[split].contents):,}" for split in SPLITS)
    how = described(own.places, "stratified")
    left_out = sum(some.left_out for some in items.values())
    notes = [f"left out: {left_out:,} {what} without a label or content"] if left_out else []
    notes += [
        f"class {name} has too few {what} to be in validation and test"
        for name in classes
        if not all(balance[split][name] for split in SPLITS)
    ][:3]
    keys = {split: [_key(content) for content in part.contents] for split, part in parts.items()}
    every = [_key(content) for content in items["train"].contents]
    if own.missing and (copies := len(every) - len(set(every))):
        notes.append(f"{copies:,} {what} are copies of others; copies are in one split together")
    notes += [
        f"{count:,} {what} of {split} are also in an earlier split: scores look better"
        for split, count in shared(keys).items()
    ]
    summary = f"{sizes} {what} to train, validate and test ({how}); {len(classes)} classes: {counted}; {more}"
    return {
        "summary": summary,
        "notes": tuple(notes),
        "classes": tuple(classes),
        "balance": {split: [balance[split][name] for name in classes] for split in SPLITS},
    }


def _key(content: Any) -> str:
    return content_hash(content.tobytes() if isinstance(content, np.ndarray) else " ".join(content).encode())


def content_hash(content: bytes) -> str:
    """Return a hash by which copies are found."""
    return hashlib.sha256(content).hexdigest()
