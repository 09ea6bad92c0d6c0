"""A trained model and its verbs. Each verb calls the function of this package that does it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rru import data, tasks
from rru.data import KEYS, Facts
from rru.data.spelling import in_command
from rru.data.vocabulary import Vocabulary
from rru.inference import showing
from rru.inference.backtest_scores import Backtest
from rru.inference.backtesting import backtest
from rru.inference.classifying import classify_all
from rru.inference.evaluating import evaluate
from rru.inference.export import export
from rru.inference.forecasting import Forecasts, forecast
from rru.inference.history import HasRun
from rru.inference.music import Piece, Roll
from rru.inference.score import Prompt, continued
from rru.inference.score import prompt as prompt_of
from rru.inference.streaming import Stream
from rru.inference.writing import write
from rru.kinds import KINDS, TrainedOn, kind_of
from rru.kinds.sources import Source
from rru.settings import Config
from rru.tasks import QUANTILES
from rru.training import Result, RunError

MEDIAN = QUANTILES.index(0.5)
Chances = dict[str, float]
"""The probability of each class, highest first."""
PREDICTING = ("classify", "forecast")
"""The commands of models that have one natural answer, which `predict` gives."""


@dataclass(frozen=True, repr=False)
class Trained(HasRun):
    """A model with its best weights, ready to use, and the settings and result of its run.

    Which of `write`, `compose`, `forecast`, `backtest`, `classify`, `stream` and `predict` it has depends on the kind
    of data; see `verbs`. The other methods are for all.

    **Arguments:**

    - `path`: the folder it was loaded from.
    - `config`: the run's settings.
    - `model`: the model, in evaluation mode, on the CPU.
    - `vocabulary`: its vocabulary; None if it does not read text.
    - `facts`: what is known about the user's own data it was trained on; None for a data set of the catalogue.
    - `epoch`: the epoch its weights are from; None for an exported folder.
    - `result`: its result; None if the run has not ended, or for an exported folder.
    """

    path: Path
    config: Config
    model: tasks.Recurrent
    vocabulary: Vocabulary | None
    facts: Facts | None
    epoch: int | None
    result: Result | None

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.config.task.name

    @property
    def kind(self) -> str:
        """The name of the kind of data it was trained on, such as `music`; see `rru.kinds`."""
        return self.config.kind

    @property
    def trained_on(self) -> TrainedOn:
        """What it keeps of its data, to read new data in the same way."""
        return TrainedOn(self.config.task, self.config.data, self.facts, self.vocabulary)

    @property
    def verbs(self) -> tuple[str, ...]:
        """The names of the methods that its kind of data has."""
        commands = kind_of(self.kind).commands
        predict = ("predict",) if not in_command() and set(commands) & set(PREDICTING) else ()
        return (*commands, *predict, "evaluate", "export")

    def write(
        self,
        prompt: str = "",
        length: int = 200,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int = 0,
    ) -> str:
        """Continue a text, and return it with its beginning; see `rru.inference.write`, which yields it in pieces."""
        pieces = write(self, prompt, length, temperature=temperature, top_k=top_k, seed=seed)
        return prompt + "".join(pieces)

    def compose(
        self,
        prompt: Path | str | Roll | None = None,
        bars: int = 16,
        *,
        from_test: int | None = None,
        temperature: float = 1.0,
        voices: int | None = None,
        octave: int = 0,
        seed: int = 0,
        data_dir: data.Place = None,
    ) -> Piece:
        """Compose a piece; see `rru.inference.compose`. Notebooks show and play it, and its `save` writes it to files.

        **Arguments:** `prompt`: a MIDI file or a piano roll (T, 88) to continue, by default the first chord of a test
        piece; `bars`: how many, after the prompt; the others as for `rru compose`.
        """
        if isinstance(prompt, int | float):
            raise TypeError(f"prompt must be a MIDI file or a piano roll (T, {KEYS}); for {prompt} bars: bars={prompt}")
        if not isinstance(bars, int) or bars < 1:
            raise ValueError(f"bars must be a whole number of at least 1, got {bars!r}")
        if prompt is None or isinstance(prompt, Path | str):
            file = None if prompt is None else Path(prompt).expanduser()
            given = prompt_of(self, file, from_test, seed, data_dir, octave=octave)
        else:
            given = Prompt(np.asarray(prompt, np.uint8), np.asarray(prompt, np.uint8))
        return continued(self, given, bars, octave=octave, temperature=temperature, voices=voices, seed=seed)

    def forecast(self, data: Source = None, horizon: int | None = None) -> Forecasts:
        """Forecast the steps after the end of each series in a table; see `rru.inference.forecast`.

        Notebooks show the forecasts as a picture; their `columns` are a table, and `save` writes both to files.
        """
        return forecast(self, data, horizon)

    def backtest(
        self,
        data: Source = None,
        *,
        horizon: int | None = None,
        origins: int | None = None,
        stride: int | None = None,
    ) -> Backtest:
        """Forecast from origins in the past, and compare with what came true; see `rru.inference.backtest`.

        Its `scores` are those of the model and of simple forecasts, `columns` has all forecasts, `save` writes both.
        """
        return backtest(self, data, horizon=horizon, origins=origins, stride=stride)

    def classify(self, data: Source) -> Chances | list[Chances]:
        """Return the probability of each class, highest first; see `rru.inference.classify_all`.

        One text, file or array gives one answer; a list or a table gives a list, in its order.
        """
        chances = classify_all(self, data)
        return chances[""] if list(chances) == [""] else list(chances.values())

    def predict(self, data: Source = None) -> str | list[str] | NDArray[np.float64]:
        """Return the likeliest class of each item, or the median of each forecast, (series, horizon).

        One item gives one class; one series without a name gives (horizon,). See `classify` and `forecast`.
        """
        if not set(PREDICTING) & set(kind_of(self.kind).commands):
            raise RunError(f"{self.path}: `predict` is for models that classify or forecast; {self._this}")
        if "forecast" in self.verbs:
            forecasts = self.forecast(data)
            medians = np.stack([each.quantiles[:, MEDIAN] for each in forecasts])
            return medians if forecasts[0].name else medians[0]
        chances = self.classify(data)
        return next(iter(chances)) if isinstance(chances, dict) else [next(iter(each)) for each in chances]

    def evaluate(
        self,
        data: Source = None,
        labels: Iterable[object] | None = None,
        *,
        split: str = "test",
        data_dir: data.Place = None,
    ) -> dict[str, float]:
        """Return all scores, on the test split of its data or on new data; see `rru.inference.evaluate`."""
        return evaluate(self, data, labels, split=split, data_dir=data_dir)

    def stream(self) -> Stream:
        """Return a `Stream`, which runs many sequences at once, one step at a time; see `rru.stream`."""
        self.check_command("stream")
        return Stream(self.model)

    def export(
        self, folder: Path | str, format: str = "safetensors", *, int8: bool = False, form: str | None = None
    ) -> list[str]:
        """Write the model to a new folder, for `rru.load` or other runtimes; see `rru.inference.export`.

        **Arguments:** `folder`: the folder to create; `format`: `safetensors`, `onnx`, `torch-export` or `c`; `int8`:
        whether weights are rounded to int8, for `c`; `form`: the old name of `format`.
        """
        return export(self, Path(folder), format if form is None else form, int8=int8)

    def check_command(self, command: str) -> None:
        """Raise RunError unless the command is for models of its kind of data."""
        if command in kind_of(self.kind).commands:
            return
        able = [each for each in KINDS.values() if command in each.commands]
        names = [name for name in tasks.task_names() if kind_of(data.data_set(name).kind) in able]
        own = " or ".join(dict.fromkeys(each.noun for each in able))
        wanted = f"{', '.join(names)} or your own {own}" if names else own
        raise RunError(f"{self.path}: `{command}` needs a run of {wanted}; {self._this}")

    @property
    def _this(self) -> str:
        """What it is and what it can do, for the end of an error."""
        *first, last = (f"`{verb}`" for verb in self.verbs)
        return f"this is a run of {self.task}: {kind_of(self.kind).noun}, for {', '.join(first)} and {last}"

    def checked(self, logits: Tensor) -> Tensor:
        """Return the logits; raise RunError if one is not finite."""
        if not logits.isfinite().all():
            raise RunError(f"{self.path}: the model's outputs are not finite; its weights cannot be used")
        return logits

    @property
    def _title(self) -> str:
        return f"{self.config.model.cell} on {self.config.title}"

    def __dir__(self) -> Iterator[str]:
        """List only the verbs that its kind of data has, for completion."""
        of_some = {"predict", *(command for kind in KINDS.values() for command in kind.commands)}
        return (name for name in super().__dir__() if name not in of_some or name in self.verbs)

    def __repr__(self) -> str:
        return showing.line(self)

    def _repr_html_(self) -> str:
        return showing.page(self)
