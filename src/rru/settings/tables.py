"""Declare the settings of a run: one frozen dataclass for each table of a config.

`Option` says what a setting means and which values are valid. The settings of a task are declared in
`rru.tasks.settings`, the options of reading a user's data in `rru.kinds.options`, those of a cell in its constructor.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from rru.data import OwnData
from rru.data.own.source import Fingerprint
from rru.nn.options import MAX_PARTS, Option


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The table `data`: where a user's own data is and what it was; options of its kind follow. None means not set."""

    kind: Annotated[str, Option("what the data is")]
    path: Annotated[str, Option("the file or folder")]
    size: Annotated[int, Option("its bytes", at_least=0)]
    hash: Annotated[str, Option("its SHA-256")]
    valid: Annotated[str | None, Option("the file or folder to validate on")] = None
    valid_size: Annotated[int | None, Option("its bytes", at_least=0)] = None
    valid_hash: Annotated[str | None, Option("its SHA-256")] = None
    test: Annotated[str | None, Option("the file or folder to test on")] = None
    test_size: Annotated[int | None, Option("its bytes", at_least=0)] = None
    test_hash: Annotated[str | None, Option("its SHA-256")] = None


_PLACES = {"train": ("path", "size", "hash")} | {
    split: (split, f"{split}_size", f"{split}_hash") for split in ("valid", "test")
}


def data_table(data: OwnData) -> dict[str, object]:
    """Return the plain table of a user's data, from `OwnData.recorded`."""
    table: dict[str, object] = {"kind": data.kind}
    for split, print_ in data.expected.items():
        table |= zip(_PLACES[split], (str(data.places[split]), print_.size, print_.hash), strict=True)
    return table | dict(data.options)


def own_data(table: Mapping[str, Any]) -> OwnData:
    """Return the data that a table describes. Loading it raises DataError if it is not what is recorded there."""
    names = {split: names for split, names in _PLACES.items() if names[0] in table}
    places = {split: Path(table[path]) for split, (path, _, _) in names.items()}
    expected = {split: Fingerprint(table.get(size, 0), table.get(sha, "")) for split, (_, size, sha) in names.items()}
    recorded = {each.name for each in fields(DataSettings)}
    options = {name: value for name, value in table.items() if name not in recorded}
    return OwnData(table["kind"], places["train"], options, places.get("valid"), places.get("test"), expected)


WHERE_UNSET = {"rru": {"init": "paper"}}
"""By cell, what an option that a config does not set means, where that is not the cell's default."""


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The table `model`: settings shared by all cells; `cell_options` are those of its cell, as names and values."""

    cell: Annotated[str, Option("the recurrent cell")]
    budget: Annotated[int, Option("maximum number of parameters of the whole model", at_least=1)]
    num_layers: Annotated[int, Option("number of stacked layers", at_least=1, at_most=MAX_PARTS)]
    dropout: Annotated[float, Option("recurrent dropout", at_least=0, below=1, search=(0.0, 0.8))]
    embedding_size: Annotated[int | None, Option("size of a token's embedding", at_least=1)] = None
    cell_options: tuple[tuple[str, Any], ...] = ()

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of its cell that are set, by name."""
        return MappingProxyType(dict(self.cell_options))

    @property
    def arguments(self) -> dict[str, Any]:
        """The options for `Task.model`: those of its cell, and those shared by all cells."""
        embedding = {} if self.embedding_size is None else {"embedding_size": self.embedding_size}
        shared = {"num_layers": self.num_layers, "dropout": self.dropout, **embedding}
        return shared | WHERE_UNSET.get(self.cell, {}) | dict(self.options)


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


PRECISIONS = FLOAT32, BFLOAT16 = "float32", "bf16"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The table `schedule`: how long a run trains, at which rates and precision, its seed, when it logs and saves."""

    patience: Annotated[int, Option("epochs without improvement before training stops", at_least=1)]
    epochs: Annotated[int, Option("maximum number of epochs", at_least=1)]
    seed: Annotated[
        int, Option("random seed for initial weights, data order and dropout", at_least=0, at_most=2**63 - 1)
    ]
    decay: Annotated[
        str,
        Option(
            "how the learning rate falls to zero over all epochs: along a cosine, a line, or not at all",
            choices=("none", "cosine", "linear"),
        ),
    ] = "none"
    warmup: Annotated[
        float, Option("share of all planned steps over which the learning rate rises from zero", at_least=0, below=1)
    ] = 0.0
    precision: Annotated[
        str,
        Option("the precision of products in training; weights, sums and evaluation are float32", choices=PRECISIONS),
    ] = FLOAT32
    last_epoch: Annotated[
        int | None, Option("the epoch to end after, if that is before the last one planned", at_least=1)
    ] = None
    test_every_epoch: Annotated[
        bool,
        Option("also test after every epoch, to show the best of all epochs as some papers do; selects nothing"),
    ] = False
    minutes: Annotated[
        float | None, Option("the time that size and epochs were chosen for, with --minutes", above=0)
    ] = None
    log_steps: Annotated[int, Option("steps between log lines; 0 for none", at_least=0)] = 100
    checkpoint_steps: Annotated[int, Option("steps between checkpoints within an epoch; 0 for none", at_least=0)] = 0
    checkpoint_seconds: Annotated[
        float, Option("seconds between checkpoints within an epoch; 0 for none", at_least=0)
    ] = 300.0


INERT = frozenset(
    (
        *("data.path", "data.valid", "data.test"),
        *("schedule.minutes", "schedule.test_every_epoch"),
        *("schedule.log_steps", "schedule.checkpoint_steps", "schedule.checkpoint_seconds"),
    )
)
"""Settings that do not affect the result, so that the id of a config ignores them."""

TABLES = ("task", "data", "model", "optimiser", "schedule")
"""The tables of a config, in the order of config.toml."""
