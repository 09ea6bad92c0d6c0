"""What labelled texts and sequences have in common: classes, a stratified split, and what is known about them."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own.column import is_number
from rru.data.own.data_json import LabelFacts, Statistics
from rru.data.own.splits import copy_notes, described, slashed, stratified
from rru.data.own.table import listed
from rru.data.sets import SPLITS
from rru.data.spelling import option

if TYPE_CHECKING:
    from rru.data.own import OwnData

MAX_CLASSES = 1000
SHOWN = 12  # classes whose counts the summary has
MIN_ITEMS = 10  # items
Content = TypeVar("Content", list[str], NDArray[np.float64])


@dataclass(frozen=True)
class Items(Generic[Content]):
    """Labelled items: `contents` and `labels` of each, and how many were left out because something was missing."""

    contents: list[Content]
    labels: list[str]
    left_out: int = 0

    @cached_property
    def keys(self) -> list[str]:
        """A hash of the content of each item, by which copies are found."""
        contents = (
            each.tobytes() if isinstance(each, np.ndarray) else " ".join(each).encode() for each in self.contents
        )
        return [hashlib.sha256(content).hexdigest() for content in contents]

    @cached_property
    def classes(self) -> list[str]:
        """The different labels, in the order of numbers if they are numbers."""
        names = sorted(set(self.labels))
        try:
            return sorted(names, key=float)
        except ValueError:
            return names

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each item begins if all are concatenated, and where the last one ends, (N + 1,)."""
        return np.cumsum([0, *map(len, self.contents)], dtype=np.int64)

    def indices(self, classes: Sequence[str]) -> NDArray[np.unsignedinteger]:
        """Return the index of the class of each item, (N,); raise ValueError if one is not among the classes."""
        place = {name: number for number, name in enumerate(classes)}
        if new := sorted(set(self.labels) - set(classes)):
            raise ValueError(f"labels must be among {listed(classes, 12)}; got {new[0]!r}")
        return np.array([place[label] for label in self.labels], np.min_scalar_type(len(classes)))


def divided(own: "OwnData", items: Mapping[str, Items[Content]]) -> dict[str, Items[Content]]:
    """Return the items of each split: a tenth of every class is held out, unless the user gave the split."""
    _check_classes(own, items["train"])
    parts: dict[str, Items[Content]] = {split: Items([], []) for split in SPLITS}
    chosen = stratified(items["train"].keys, items["train"].labels, own.missing)
    for split, some in items.items():
        split_of = chosen if split == "train" else [split] * len(some.labels)
        for part, content, label in zip(split_of, some.contents, some.labels, strict=True):
            parts[part].contents.append(content)
            parts[part].labels.append(label)
    for split, some in parts.items():
        place = own.places.get(split, own.path)
        if new := sorted(set(some.labels) - set(parts["train"].labels)):
            raise DataError(place, f"has the class {new[0]!r}, which is not in {own.path}")
        if not some.contents:
            advice = f"give a file with {option(split)}"
            raise DataError(place, f"has too few of each class: none is left for {split}; {advice}")
    return parts


def _check_classes(own: "OwnData", items: Items[Content]) -> None:
    classes, count = items.classes, len(items.labels)
    where = f"column {own.options['label']!r}" if "label" in own.options else "the sub-folders"
    if count < MIN_ITEMS:
        raise DataError(own.path, f"must have at least {MIN_ITEMS} labelled items, got {count}")
    if len(classes) < 2:
        raise DataError(own.path, f"must have at least two classes in {where}, got only {classes[0]!r}")
    if len(classes) > min(MAX_CLASSES, count // 2):
        many = f"{len(classes):,} different values in {count:,} items; to predict numbers, use {option('target')}"
        raise DataError(own.path, f"must have classes in {where}, got {many}")


def label_facts(
    own: "OwnData",
    items: Mapping[str, Items[Content]],
    parts: Mapping[str, Items[Content]],
    what: str,
    more: str,
    statistics: Statistics,
) -> LabelFacts:
    """Return what is known about labelled items.

    **Arguments:**

    - `items`, `parts`: before and after `divided`.
    - `what`: the items, such as `texts`.
    - `more`: the end of the summary.
    - `statistics`: all but the number of classes.
    """
    classes = parts["train"].classes
    balance = {split: Counter(parts[split].labels) for split in SPLITS}
    total = sum(balance.values(), Counter[str]())
    named = "class {}: {:,}" if all(map(is_number, classes)) else "{} {:,}"
    counted = listed([named.format(name, total[name]) for name in classes], SHOWN)
    left_out = sum(some.left_out for some in items.values())
    notes = [f"left out: {left_out:,} {what} without a label or content"] if left_out else []
    rare = [name for name in classes if not all(balance[split][name] for split in SPLITS)]
    notes += [f"class {name} has too few {what} to be in validation and test" for name in rare[:3]]
    notes += copy_notes({split: some.keys for split, some in items.items()}, what)
    sizes, how = slashed(len(parts[split].contents) for split in SPLITS), described(own.places, "stratified")
    return LabelFacts(
        statistics={**statistics, "classes": len(classes)},
        summary=f"{sizes} {what} to train, validate and test ({how}); {len(classes)} classes: {counted}; {more}",
        notes=tuple(notes),
        classes=tuple(classes),
        balance={split: [balance[split][name] for name in classes] for split in SPLITS},
    )
