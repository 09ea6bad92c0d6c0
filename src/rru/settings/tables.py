"""Declares the settings of a run: one frozen dataclass for each table of a config.

`Option` says what a setting means and which values are valid; `Rule` says when it applies. Settings specific to one
cell are declared in that cell's constructor.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from rru.data import KEYS, own
from rru.data.own.source import Fingerprint
from rru.nn.options import MAX_PARTS, Option
from rru.tasks import joint

LANGUAGE = ("words", "characters", "bytes")


@dataclass(frozen=True)
class Rule:
    """Says when a setting applies; placed next to its `Option` in `Annotated`.

    **Arguments:**

    - `kinds`: the kinds of data it applies to; empty means all.
    - `required`: a config must give it where it applies, although the field has a default.
    - `chosen`: it selects the preset, so it cannot be changed afterwards.
    - `inert`: it does not affect the result, so the config's id ignores it.
    """

    kinds: tuple[str, ...] = ()
    required: bool = False
    chosen: bool = False
    inert: bool = False


class FrozenDict(Mapping[str, Any]):
    """A read-only dict that, unlike `types.MappingProxyType`, can be pickled and hashed."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """The table `task`: the data and how it is cut into batches. None means not set."""

    name: Annotated[str, Option("the data set"), Rule(chosen=True)]
    context: Annotated[int, Option("maximum number of time steps per batch", at_least=1)]
    batch_size: Annotated[int, Option("sequences in a batch", at_least=1)]
    stateful: Annotated[
        bool | None,
        Option("whether training carries the state from batch to batch"),
        Rule(kinds=LANGUAGE, required=True),
    ] = None
    line_ends: Annotated[bool | None, Option("whether the end of a line counts as a word"), Rule(kinds=("words",))] = (
        None
    )
    limit: Annotated[
        int | None, Option("maximum number of pieces, tokens, reviews or images to train on", at_least=1)
    ] = None
    evaluation_limit: Annotated[int | None, Option("maximum number to validate and test on", at_least=1)] = None

    output: Annotated[
        str, Option("how the keys of a step depend on each other", choices=joint.OUTPUTS), Rule(kinds=("music",))
    ] = joint.INDEPENDENT
    output_units: Annotated[int, Option("hidden units of the output 'nade'", at_least=1), Rule(kinds=("music",))] = (
        joint.UNITS
    )
    key_order: Annotated[
        str, Option("the order of keys of a joint output", choices=joint.ORDERS), Rule(kinds=("music",))
    ] = joint.LOW_HIGH

    transposition: Annotated[
        int,
        Option("the most semitones to transpose training pieces by", at_least=0, at_most=KEYS - 1),
        Rule(kinds=("music",)),
    ] = 0

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments for `rru.tasks.load`; settings at their default are left out."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}
        defaults = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in given.items() if value != defaults[name]}

    @property
    def model_arguments(self) -> dict[str, Any]:
        """The keyword arguments for `rru.tasks.model` that say what the model of the task is."""
        known = ("output", "output_units", "key_order")
        return {"stateful": bool(self.stateful), **{name: getattr(self, name) for name in known}}


_SERIES = Rule(kinds=("series",), chosen=True)


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The table `data`: a user's own data. None means not set. Settings from `tokenizer` on say how it is read."""

    kind: Annotated[str, Option("what the data is", choices=own.KINDS), Rule(chosen=True)]
    path: Annotated[str, Option("the file or folder"), Rule(chosen=True, inert=True)]
    size: Annotated[int, Option("its bytes", at_least=0), Rule(chosen=True)]
    hash: Annotated[str, Option("its SHA-256"), Rule(chosen=True)]
    valid: Annotated[str | None, Option("the file or folder to validate on"), Rule(chosen=True, inert=True)] = None
    valid_size: Annotated[int | None, Option("its bytes", at_least=0), Rule(chosen=True)] = None
    valid_hash: Annotated[str | None, Option("its SHA-256"), Rule(chosen=True)] = None
    test: Annotated[str | None, Option("the file or folder to test on"), Rule(chosen=True, inert=True)] = None
    test_size: Annotated[int | None, Option("its bytes", at_least=0), Rule(chosen=True)] = None
    test_hash: Annotated[str | None, Option("its SHA-256"), Rule(chosen=True)] = None

    tokenizer: Annotated[
        str | None,
        Option("how to split a text into words", choices=("punctuation", "spaces")),
        Rule(kinds=("words",), chosen=True),
    ] = None
    vocabulary: Annotated[
        int | None,
        Option("maximum number of words in the vocabulary; default 10,000", at_least=10, at_most=1_000_000),
        Rule(kinds=("words", "texts"), chosen=True),
    ] = None
    grid: Annotated[
        int | None,
        Option("steps per quarter note of MIDI files; default 4", at_least=1, at_most=96),
        Rule(kinds=("music",), chosen=True),
    ] = None
    text: Annotated[str | None, Option("the column with texts to classify"), Rule(kinds=("texts",), chosen=True)] = None
    label: Annotated[
        str | None, Option("the column with the class to predict"), Rule(kinds=("texts", "sequences"), chosen=True)
    ] = None
    sequence: Annotated[
        str | None,
        Option("the column that says which sequence a row belongs to"),
        Rule(kinds=("sequences",), chosen=True),
    ] = None
    target: Annotated[str | None, Option("the column to forecast"), _SERIES] = None
    horizon: Annotated[int | None, Option("number of steps to forecast", at_least=1), _SERIES] = None
    id: Annotated[str | None, Option("the column that says which series a row belongs to"), _SERIES] = None
    time: Annotated[
        str | None,
        Option("the column with times, by which rows are sorted"),
        Rule(kinds=("sequences", "series"), chosen=True),
    ] = None
    columns: Annotated[
        str | None,
        Option("the numeric columns to use as inputs, separated by commas; for forecasts also 'all'"),
        Rule(kinds=("sequences", "series"), chosen=True),
    ] = None
    known: Annotated[
        str | None, Option("input columns whose future values are known in advance, separated by commas"), _SERIES
    ] = None
    calendar: Annotated[
        bool | None, Option("whether to use the hour, the weekday and the time of year as inputs"), _SERIES
    ] = None
    frequency: Annotated[str | None, Option("the time between steps, such as 30min, h, D, W or M"), _SERIES] = None
    season: Annotated[int | None, Option("number of steps after which a pattern repeats", at_least=1), _SERIES] = None

    @classmethod
    def tables_of(cls, given: own.OwnData) -> dict[str, Any]:
        """Returns the plain table for a user's data."""
        table: dict[str, Any] = {"kind": given.kind}
        for split, found in given.fingerprints.items():
            path, size, digest = ("path", "size", "hash") if split == "train" else _NAMES[split]
            table |= {path: str(given.places[split].absolute()), size: found.size, digest: found.hash}
        return table | dict(given.options)

    @property
    def own(self) -> own.OwnData:
        """The data. Loading it raises DataError if it is not what is recorded here."""
        recorded = {"train": (self.path, self.size, self.hash)}
        recorded |= {split: tuple(getattr(self, name) for name in names) for split, names in _NAMES.items()}
        known = {split: each for split, each in recorded.items() if each[0] is not None}
        places = {split: Path(place) for split, (place, _, _) in known.items()}
        expected = {split: Fingerprint(size, digest) for split, (_, size, digest) in known.items()}
        given = {name: getattr(self, name) for name in OPTIONS_OF_DATA}
        options = {name: value for name, value in given.items() if value is not None}
        return own.OwnData(
            self.kind, places["train"], options, places.get("valid"), places.get("test"), expected=expected
        )


_NAMES = {split: (split, f"{split}_size", f"{split}_hash") for split in ("valid", "test")}
_RECORDED = ("kind", "path", "size", "hash", *(name for names in _NAMES.values() for name in names))
OPTIONS_OF_DATA = tuple(field.name for field in fields(DataSettings) if field.name not in _RECORDED)
"""The settings of the table `data` that say how the data is read; each is an option of the commands too."""


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The table `model`: settings shared by all cells; `options` holds the cell's own options that are set."""

    cell: Annotated[str, Option("the recurrent cell"), Rule(chosen=True)]
    budget: Annotated[int, Option("maximum number of parameters of the whole model", at_least=1)]
    num_layers: Annotated[int, Option("number of stacked layers", at_least=1, at_most=MAX_PARTS)]
    dropout: Annotated[float, Option("recurrent dropout", at_least=0, below=1, search=(0.0, 0.8))]
    embedding_size: Annotated[
        int | None,
        Option("size of a token's embedding", at_least=1),
        Rule(kinds=(*LANGUAGE, "reviews", "texts"), required=True),
    ] = None
    options: FrozenDict

    @property
    def arguments(self) -> dict[str, Any]:
        """The options for `Task.model`: the cell's own and those shared by all cells."""
        embedding = {} if self.embedding_size is None else {"embedding_size": self.embedding_size}
        return {"num_layers": self.num_layers, "dropout": self.dropout, **embedding, **self.options}


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """The table `optimiser`. None means not set."""

    name: Annotated[str, Option("radam is the paper's", choices=("radam", "torch-radam", "adamw"))]
    lr: Annotated[float, Option("learning rate", above=0, at_most=10, search=(1e-4, 1e-2), log=True)]
    beta1: Annotated[float, Option("decay rate of the first moment", at_least=0, below=1)]
    beta2: Annotated[float, Option("decay rate of the second moment", at_least=0, below=1)]
    eps: Annotated[float, Option("added to the root of the second moment", above=0)]
    weight_decay: Annotated[float | None, Option("decoupled weight decay; not for radam", at_least=0)] = None
    clipping: Annotated[
        str,
        Option(
            "gradient clipping: per tensor by its past norms, by global norm, or none",
            choices=("adaptive", "norm", "none"),
        ),
    ]
    clip: Annotated[float, Option("adaptive: the multiplier; norm: the largest norm", above=0)]
    ema: Annotated[
        float, Option("part of the running average of weights that a step keeps; 0: no average", at_least=0, below=1)
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The table `schedule`: how long a run trains, its seed, and how often it logs and saves."""

    patience: Annotated[int, Option("epochs without improvement before training stops", at_least=1)]
    epochs: Annotated[int, Option("maximum number of epochs", at_least=1)]
    seed: Annotated[
        int, Option("random seed for initial weights, data order and dropout", at_least=0, at_most=2**63 - 1)
    ]
    test_every_epoch: Annotated[
        bool,
        Option("also test after every epoch, to show the best of all epochs as some papers do; selects nothing"),
        Rule(inert=True),
    ] = False
    log_steps: Annotated[int, Option("steps between log lines; 0 for none", at_least=0), Rule(inert=True)] = 100
    checkpoint_steps: Annotated[
        int, Option("steps between checkpoints within an epoch; 0 for none", at_least=0), Rule(inert=True)
    ] = 0
    checkpoint_seconds: Annotated[
        float, Option("seconds between checkpoints within an epoch; 0 for none", at_least=0), Rule(inert=True)
    ] = 300.0


TABLES: dict[str, type[Any]] = {
    "task": TaskSettings,
    "data": DataSettings,
    "model": ModelSettings,
    "optimiser": OptimiserSettings,
    "schedule": Schedule,
}
