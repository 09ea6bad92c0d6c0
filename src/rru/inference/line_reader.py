"""Read one sequence line by line with a trained model, and tell after each line what the model predicts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rru.data import KEYS, LOWEST_NOTE
from rru.inference.classifying import ranked
from rru.kinds import kind_of
from rru.tasks import JointHead, LayerState

if TYPE_CHECKING:
    from rru.inference.trained import Trained

SHOWN = 3  # tokens or classes
MIN_SHOWN = 0.05  # probability of a note that is shown
SAMPLES = 1000  # chords: a joint output has no closed form for the probability of a note


class LineReader:
    """A sequence that a trained model reads. The state is carried from line to line.

    **Arguments:** `trained`: a model trained on text, on texts or sequences with labels, or on music.
    """

    def __init__(self, trained: Trained) -> None:
        trained.check_command("stream")
        self.trained, self._kind = trained, kind_of(trained.kind)
        readers = {"write": self._text, "compose": self._notes, "classify": self._class}
        self._read = readers[self._kind.commands[0]]
        self._state: LayerState = None
        self._before: Tensor | None = None  # logits (tokens,) of the next token

    def read(self, line: str) -> str:
        """Read a line and return what the model predicts now; empty if there is nothing in the line.

        Text is read with its line end. With labels, each line continues a text, or has the numbers of one step,
        separated by commas; an empty line begins another sequence. Music: each line has the MIDI notes of one step.
        """
        return self._read(line)

    @torch.no_grad()
    def _run(self, inputs: Tensor) -> Tensor:
        logits, self._state = self.trained.model(inputs, self._state)
        return self.trained.checked(logits)

    def _text(self, line: str) -> str:
        """Return how many bits each token of the line took, and what is likely to follow."""
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
        """Return how likely the classes are so far."""
        if not line.strip():
            self._state = None
            return ""
        assert self._kind.line is not None  # every kind whose classes can be streamed has it
        inputs = self._kind.line(self.trained.trained_on, line)
        if inputs is None:
            return ""
        chances = list(ranked(self.trained, self._run(inputs)[0]).items())[:SHOWN]
        return _listed([name for name, _ in chances], [chance for _, chance in chances])

    def _notes(self, line: str) -> str:
        """Return which notes are likely at the next step."""
        keys = torch.zeros(1, 1, KEYS)
        for field in line.split():
            if not field.isdecimal() or not 0 <= int(field) - LOWEST_NOTE < KEYS:
                wanted = f"MIDI notes from {LOWEST_NOTE} to {LOWEST_NOTE + KEYS - 1}"
                raise ValueError(f"must have {wanted} separated by spaces, got {field[:80]!r}")
            keys[0, 0, int(field) - LOWEST_NOTE] = 1
        chances = self._chances(self._run(keys)[0])  # (88,)
        likely = [key for key in chances.argsort(descending=True).tolist() if chances[key] >= MIN_SHOWN]
        return f"next {_listed([str(LOWEST_NOTE + key) for key in likely], chances[likely].tolist())}"

    def _chances(self, outputs: Tensor) -> Tensor:
        """Return how probable each key is at the next step, (88,), from the model's outputs, (1, c)."""
        head = self.trained.model.head
        if not isinstance(head, JointHead):
            return outputs[0].sigmoid()
        return head.sample(outputs.expand(SAMPLES, -1), torch.Generator().manual_seed(0)).mean(0)


def _listed(names: list[str], chances: list[float]) -> str:
    """Return names with their probabilities."""
    return ", ".join(f"{name} {chance:.0%}" for name, chance in zip(names, chances, strict=True)) or "nothing"
