"""Read one sequence step by step with a trained model, and say after each line what it makes of it."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rru.data import KEYS, LOWEST_NOTE
from rru.data.own.sequences import scaled
from rru.data.reviews import words_of
from rru.inference.classifying import ranked
from rru.inference.trained import Trained
from rru.tasks import JointHead
from rru.training import RunError

TEXT, LABELS = ("words", "characters", "bytes"), ("reviews", "texts", "sequences")
SHOWN = 3  # tokens or classes
LEAST = 0.05  # probability of a note that is shown


class Reader:
    """A sequence that a trained model reads. The state is carried from line to line.

    **Arguments:** `trained`: a model trained on text, on texts or sequences with labels, or on music.
    """

    def __init__(self, trained: Trained) -> None:
        trained.check_kind(*TEXT, *LABELS, "music", to="stream")
        if isinstance(trained.model.head, JointHead):
            raise RunError(f"{trained.path}: `stream` needs independent keys, this run has a joint output")
        self.trained = trained
        self._state: Any = None
        self._before: Tensor | None = None  # logits (tokens,) of the next token

    def read(self, line: str) -> str:
        """Reads a line and returns what the model says now; empty if the line has nothing to say something about.

        Text is read with its line end. With labels, each line goes on with a text, or has the numbers of one step,
        separated by commas; an empty line begins another sequence. Music: each line has the MIDI notes of one step.
        """
        if self.trained.kind in TEXT:
            return self._text(line)
        if self.trained.kind == "music":
            return self._notes(line)
        if line.strip():
            return self._class(line)
        self._state = None
        return ""

    @torch.no_grad()
    def _run(self, inputs: Tensor) -> Tensor:
        logits, self._state = self.trained.model(inputs, self._state)
        return self.trained.checked(logits)

    def _text(self, line: str) -> str:
        """Says how many bits each token of the line took, and what is likely to follow."""
        vocabulary = self.trained.vocabulary
        assert vocabulary is not None  # every model of text has one
        ids = torch.from_numpy(vocabulary.encode(line).astype(np.int64))
        if not len(ids):
            return ""
        logits = self._run(ids[:, None])[:, 0]  # (T, tokens)
        first = torch.zeros(1, len(vocabulary)) if self._before is None else self._before[None]
        ahead = torch.cat([first, logits[:-1]]).log_softmax(-1)
        bits = -float(ahead.gather(1, ids[:, None]).mean()) / math.log(2)
        self._before = logits[-1]
        chances, tokens = self._before.softmax(-1).topk(min(SHOWN, len(vocabulary)))
        names = [repr(vocabulary.tokens[token]) for token in tokens.tolist()]
        return f"{bits:.2f} bits per {self.trained.kind[:-1]}; next {_listed(names, chances.tolist())}"

    def _class(self, line: str) -> str:
        """Says how likely the classes are so far."""
        if self.trained.kind == "sequences":
            inputs = self._numbers(line)
        else:
            assert self.trained.vocabulary is not None
            words = words_of(line)
            if not words:
                return ""
            inputs = torch.from_numpy(self.trained.vocabulary.numbers(words).astype(np.int64))[:, None]
        chances = list(ranked(self.trained, self._run(inputs)[0]).items())[:SHOWN]
        return _listed([name for name, _ in chances], [chance for _, chance in chances])

    def _numbers(self, line: str) -> Tensor:
        names = [str(name) for name in self.trained.about["columns"]]
        try:
            values = [float(field) for field in line.split(",")]
        except ValueError as error:
            raise ValueError(f"must have numbers separated by commas, got {line.strip()[:80]!r}") from error
        if len(values) != len(names):
            raise ValueError(f"must have {len(names)} numbers ({', '.join(names)}), got {len(values)}")
        return torch.from_numpy(scaled(np.array([values]), self.trained.about["scale"]))[:, None]  # (1, 1, columns)

    def _notes(self, line: str) -> str:
        """Says which notes are likely at the next step."""
        keys = torch.zeros(1, 1, KEYS)
        for field in line.split():
            if not field.isdecimal() or not 0 <= int(field) - LOWEST_NOTE < KEYS:
                wanted = f"MIDI notes from {LOWEST_NOTE} to {LOWEST_NOTE + KEYS - 1}"
                raise ValueError(f"must have {wanted} separated by spaces, got {field[:80]!r}")
            keys[0, 0, int(field) - LOWEST_NOTE] = 1
        chances = self._run(keys)[0, 0].sigmoid()  # (88,)
        likely = [key for key in chances.argsort(descending=True).tolist() if chances[key] >= LEAST]
        return f"next {_listed([str(LOWEST_NOTE + key) for key in likely], chances[likely].tolist())}"


def _listed(names: list[str], chances: list[float]) -> str:
    """Returns names with their probabilities."""
    return ", ".join(f"{name} {chance:.0%}" for name, chance in zip(names, chances, strict=True)) or "nothing"
