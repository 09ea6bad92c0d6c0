"""The settings of tasks: the table `task` of a config. Settings that only some kinds of data have are in subclasses."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar

from rru.data import KEYS
from rru.nn import checks
from rru.nn.options import Option
from rru.tasks import joint


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """The data and how it is cut into batches. None means not set."""

    name: Annotated[str, Option("the data set")]
    context: Annotated[int, Option("maximum number of time steps per batch", at_least=1)]
    batch_size: Annotated[int, Option("sequences in a batch", at_least=1)]
    limit: Annotated[
        int | None, Option("maximum number of pieces, tokens, reviews or images to train on", at_least=1)
    ] = None
    evaluation_limit: Annotated[int | None, Option("maximum number to validate and test on", at_least=1)] = None

    only_with: ClassVar[Mapping[str, tuple[str, tuple[object, ...]]]] = {}
    """Settings that need a value of another setting: its name, and the values."""

    def __post_init__(self) -> None:
        checks.positive("context", self.context)
        checks.positive("batch_size", self.batch_size)

    def check(self) -> None:
        """Raise ValueError if a setting is given that has no effect."""
        for each in fields(self):
            if getattr(self, each.name) != each.default and not self.uses(each.name):
                other, values = self.only_with[each.name]
                wanted = " or ".join(map(repr, values))
                raise ValueError(f"task.{each.name} is only for task.{other} = {wanted}, got {getattr(self, other)!r}")

    def uses(self, name: str, changes: Mapping[str, object] | None = None) -> bool:
        """Return whether a setting has an effect, given the others; `changes` are put over these."""
        if name not in self.only_with:
            return True
        other, values = self.only_with[name]
        return {other: getattr(self, other), **(changes or {})}[other] in values

    def limited(self, count: int, split: str) -> int:
        """Return how many of the `count` items of a split to use."""
        name = "limit" if split == "train" else "evaluation_limit"
        most = getattr(self, name)
        return count if most is None else min(count, checks.positive(name, most))

    @property
    def data_options(self) -> dict[str, bool]:
        """Options for loading the data."""
        return {}

    @property
    def variant(self) -> str:
        """A name, if scores do not compare with those of the task's usual model."""
        return ""

    @property
    def other_variants(self) -> list[dict[str, str]]:
        """If it is a variant, the changes, by full name, that give each other one and the usual model."""
        return []


@dataclass(frozen=True, kw_only=True)
class MusicSettings(TaskSettings):
    """Settings of music."""

    output: Annotated[
        str, Option("how the keys of a step depend on each other; 'tied': all share one network", choices=joint.OUTPUTS)
    ] = joint.INDEPENDENT
    output_units: Annotated[int, Option("hidden units of the output 'nade'", at_least=1)] = joint.UNITS
    key_order: Annotated[str, Option("the order of keys of a joint output", choices=joint.ORDERS)] = joint.LOW_HIGH
    transposition: Annotated[
        int, Option("the most semitones to transpose training pieces by", at_least=0, at_most=KEYS - 1)
    ] = 0
    bar: Annotated[
        int | None, Option("steps in a bar: the output 'tied' then knows the place of each step in it", at_least=2)
    ] = None

    only_with: ClassVar = {
        "output_units": ("output", ("nade",)),
        "key_order": ("output", ("chain", "nade")),
        "bar": ("output", ("tied",)),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bar is not None and self.context % self.bar:
            raise ValueError(f"task.context must be a multiple of task.bar, {self.bar}; got {self.context}")

    @property
    def variant(self) -> str:
        return "" if self.output == joint.INDEPENDENT else self.output

    @property
    def other_variants(self) -> list[dict[str, str]]:
        others = [output for output in joint.OUTPUTS if output != self.output]
        return [{"task.output": output} for output in others] if self.variant else []


@dataclass(frozen=True, kw_only=True)
class LanguageSettings(TaskSettings):
    """Settings of text by characters or bytes."""

    stateful: Annotated[bool, Option("whether training carries the state from batch to batch")]
    evaluation_context: Annotated[
        int | None, Option("tokens of a window in validation and tests; default: as in training", at_least=2)
    ] = None


@dataclass(frozen=True, kw_only=True)
class WordSettings(LanguageSettings):
    """Settings of text by words."""

    line_ends: Annotated[bool | None, Option("whether the end of a line counts as a word")] = None

    @property
    def data_options(self) -> dict[str, bool]:
        return {} if self.line_ends is None else {"line_ends": self.line_ends}


@dataclass(frozen=True, kw_only=True)
class SeriesSettings(TaskSettings):
    """Settings of series. Models of version 0.2 have no `patch`."""

    patch: Annotated[
        int | None, Option("steps of the context that the layers read at once; must divide it", at_least=1)
    ] = None
    ensemble: Annotated[int, Option("models that are trained together and averaged", at_least=1, at_most=100)] = 1
    everything: Annotated[bool, Option("whether to train on the validation and test parts too")] = False
    refit: Annotated[bool, Option("whether to train anew on all parts afterwards, for as many epochs as were best")] = (
        False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patch is not None and self.context % self.patch:
            raise ValueError(f"task.patch must divide task.context, {self.context}; got {self.patch}")
