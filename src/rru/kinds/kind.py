"""`Kind`: everything that the package knows about one kind of data, in one record."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from rru.data import Facts, Format, Loaded, OwnData, Vocabulary
from rru.data.own.data_json import LabelFacts, Statistics
from rru.data.own.detect import file_or_text
from rru.kinds.options import READING_OPTIONS
from rru.kinds.sizes import CELLS, Tables, smoke
from rru.kinds.sources import Source
from rru.nn.options import Declared, declared
from rru.tasks import Metric, Recurrent, Task, TaskSettings


@dataclass(frozen=True)
class Card:
    """What a model card says about using a model. Its code is Python that needs NumPy alone, and runs as it stands.

    **Arguments:**

    - `prepare`: code that makes `inputs`, an array for one sequence, from the files beside the card.
    - `interpret`: code that prints what the array named `output` says.
    - `output`: the name of the model's output.
    - `native`: in place of `interpret` if the model is loaded as `trained`. Default: `interpret`.
    - `program`: in place of `interpret` if the model is a program of torch.export. Default: `interpret`.
    - `inputs`: what the inputs and outputs are. Default: as the kind says.
    """

    prepare: str
    interpret: str
    output: str = "logits"
    native: str = ""
    inputs: str = ""
    program: str = ""


@dataclass(frozen=True)
class TrainedOn:
    """What a trained model keeps of its data, to read new data in the same way.

    **Arguments:**

    - `settings`: of its task.
    - `data`: the user's own data, which may be gone; None for a data set of the catalogue.
    - `facts`: what is known about the user's own data.
    - `vocabulary`: None if it does not read text.
    """

    settings: TaskSettings
    data: OwnData | None
    facts: Facts | None
    vocabulary: Vocabulary | None


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of data: how it is recognised, read, batched, modelled, scored, used, exported and shown.

    **Arguments:**

    - `format`: how it is recognised and read; its `name` is the name of the kind.
    - `task`: batches, architecture of the model, loss, metric and settings.
    - `noun`: what it is, in messages: `labelled texts`.
    - `commands`: the commands that use its models; the first is the main one.
    - `steps`: returns the time steps of a split (0 train, 1 valid), from the counts of the data and the settings; None
      if they are not known.
    - `inputs`: what the inputs and outputs of a model are, for its card.
    - `pipeline`: the Hub's name for what its models do.
    - `card_of`: returns what the card of a model says. Default: `inputs`, and zeros as an example of them.
    - `auto`: the settings of the preset `auto`, from the counts of a user's data and a multiple of the usual size of
      recurrent layers. None: not for users' own data.
    - `cells`: what `auto` adds for each cell.
    - `smoke`: what the preset `smoke` changes.
    - `options`: declares the options in `format` that `ReadingOptions` does not have, as fields with an `Option`.
    - `vocabularies`: the kinds of vocabulary of its models; empty if inputs are not tokens.
    - `classes`: to classify, the names of the classes of the catalogue's data sets.
    - `items`: to classify, yields name and inputs (T, 1, ...) of each item in a file, a table or in memory.
    - `read`: to evaluate, reads new data, with labels if they are given apart from it, as the task loads its own; every
      split is the same.
    - `line`: to stream classes, returns the inputs (T, 1, ...) in a line of text; None if there is nothing in it.
    - `figure`: the figure that the report shows of a run's details, by its name in `rru.report`.
    - `page`: the web page that runs its models, by its name in `rru.inference.engine.page`; empty if there is none.
    - `reading`: what tells it from other kinds that the same file can be read as. Default: its name.
    """

    format: Format
    task: type[Task]
    noun: str
    commands: tuple[str, ...]
    steps: Callable[[Statistics, int, TaskSettings], float | None]
    inputs: str
    pipeline: str | None = None
    card_of: Callable[[TrainedOn, Recurrent], Card] | None = None
    auto: Callable[[Statistics, float], Tables] | None = None
    cells: Mapping[str, Tables] = field(default_factory=lambda: CELLS)
    smoke: Callable[[Statistics], Tables] = smoke
    options: type = object
    vocabularies: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    items: Callable[[TrainedOn, Source], Iterable[tuple[str, Tensor]]] | None = None
    read: Callable[[TrainedOn, Source, Iterable[object] | None], Loaded] | None = None
    line: Callable[[TrainedOn, str], Tensor | None] | None = None
    figure: str = ""
    page: str = ""
    reading: str = ""

    @property
    def name(self) -> str:
        """The name of the kind."""
        return self.format.name

    @property
    def metric(self) -> Metric:
        """What its models are compared by."""
        return self.task.metric

    @property
    def declared_options(self) -> dict[str, Declared]:
        """The options of reading a user's data, by name."""
        shared = {name: READING_OPTIONS[name] for name in self.format.options if name in READING_OPTIONS}
        return shared | declared(self.options)

    def source(self, given: Source) -> Source:
        """Return the path if a string names a file; only kinds that read text take other strings, as texts."""
        if not isinstance(given, str):
            return given
        return file_or_text(given) if self.vocabularies else Path(given).expanduser()

    def card(self, trained: TrainedOn, model: Recurrent) -> Card:
        """Return what the card of a model says."""
        card = (self.card_of or _zeros)(trained, model)
        native, program = card.native or card.interpret, card.program or card.interpret
        return replace(card, inputs=card.inputs or self.inputs, native=native, program=program)

    def class_names(self, facts: Facts | None) -> tuple[str, ...]:
        """Return the names of the classes that a model tells apart."""
        return facts.classes if isinstance(facts, LabelFacts) else self.classes


def probable_classes(classes: str) -> str:
    """Return code for a card that prints how probable each class is; `classes` is code that gives their names."""
    return f"""classes = {classes}
chances = np.exp(logits[0] - logits[0].max())
chances /= chances.sum()  # (classes,)
for number in np.argsort(-chances)[:3]:
    print(f"{{classes[number]}}: {{chances[number]:.0%}}")
"""


def _zeros(trained: TrainedOn, model: Recurrent) -> Card:
    """Return a card with zeros as inputs, of which any model can make something."""
    zeros = model.example(16, 1)
    kind = str(zeros.dtype).removeprefix("torch.")
    return Card(f"inputs = np.zeros({tuple(zeros.shape)}, np.{kind})  # your own\n", "print(logits.shape)\n")
