"""Language: which word or character comes next."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.data import Text
from rru.tasks.batches import Batch, Batches, groups, shuffled, windows
from rru.tasks.models import device_of, language_model
from rru.tasks.task import SPLITS, Task, limited

FRESH_SHARE = 0.1  # of the batches of a stateful epoch
LINE_END = "<eos>"
EVALUATION_LOGITS = 1 << 24  # at most so many at once


class LanguageTask(Task):
    """Predicts each token of a text from those before it.

    Stateful training runs over `batch_size` equal, contiguous streams of the text side by side: a batch is the next
    `context` tokens of each and goes on from the state of the batch before, but for one in ten, drawn at random, that
    starts from plain zeros. What is left at the end of the streams, less than a batch, is not trained on. Training
    that is not stateful takes windows `context` // 2 apart, shuffled, each from the cell's own initial state.

    Evaluation takes windows `context` // 2 apart and counts of each only the tokens that the one before did not have,
    so that every token counts once, and all but those of the first window with at least half a window before them. A
    window starts as training does: from plain zeros if that is stateful, else from the cell's own initial state.

    Scores: for words `perplexity`, the exponential of the mean nats of a token; for characters `bpc`, the mean bits.
    Without line ends (the paper's convention) every token is a word. Where the text has them (the field's), perplexity
    counts them as words; it is also given as `perplexity_with_line_ends`, to be clear beside `perplexity_of_words`,
    which leaves out how well line ends were predicted.

    **Arguments:**

    - `name`: what it is called.
    - `text`: the tokens, and their vocabulary.
    - `context`: tokens of a window.
    - `batch_size`: windows, or streams, in a batch.
    - `stateful`: whether the state is carried on in training.
    - `embedding_size`: of a token, unless the model's options have it.
    - `limit`, `evaluation_limit`: the most tokens to train on, and to validate and test on; default: all.
    """

    def __init__(
        self,
        name: str,
        text: Text,
        *,
        context: int,
        batch_size: int,
        stateful: bool,
        embedding_size: int,
        limit: int | None = None,
        evaluation_limit: int | None = None,
    ) -> None:
        super().__init__(name, context, batch_size)
        self.vocabulary = text.vocabulary
        self.stateful = stateful
        self.metric = "perplexity" if text.vocabulary.kind == "words" else "bpc"
        self._embedding_size = embedding_size
        self._texts: dict[str, NDArray[Any]] = {}
        for split in SPLITS:
            tokens: NDArray[Any] = getattr(text, split)
            tokens = tokens[: limited(len(tokens), split, limit, evaluation_limit)]
            least = 2 if split != "train" else 1 + context * (batch_size if stateful else 1)
            if len(tokens) < least:
                raise ValueError(f"{name}: {split} must have at least {least} tokens, got {len(tokens)}")
            self._texts[split] = tokens
        self._predictions = len(self._texts["train"]) - 1
        self._stride = max(context // 2, 1)

    def model(self, cell: str, cell_options: Mapping[str, Any], budget: int) -> nn.Module:
        options = {"embedding_size": self._embedding_size, **cell_options}
        return language_model(cell, options, budget, len(self.vocabulary), zero_state=self.stateful)

    def steps_per_epoch(self) -> int:
        if self.stateful:
            return self._predictions // self.batch_size // self.context
        return len(groups(self._training_windows(), self.batch_size))

    def epoch(self, generator: torch.Generator) -> Batches:
        if self.stateful:
            count = self.steps_per_epoch()
            fresh = (torch.rand(count, generator=generator) < FRESH_SHARE).tolist()
            return Batches(count, lambda number: self._stream_batch(number, number == 0 or fresh[number]))
        order = shuffled(self._training_windows(), self.batch_size, generator)
        return Batches(len(order), lambda number: self._batch("train", order[number] * self._stride, self.context))

    def loss(self, model: nn.Module, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        batch = batch.to(device_of(model))
        loss, last = model(batch.inputs, None if batch.fresh else state, targets=batch.targets)
        return loss, _detached(last) if self.stateful else None

    def _training_windows(self) -> int:
        """How many whole windows the training text has, half a window apart."""
        return (self._predictions - self.context) // self._stride + 1

    def _stream_batch(self, number: int, fresh: bool) -> Batch:
        stream = self._predictions // self.batch_size
        return self._batch("train", np.arange(self.batch_size) * stream + number * self.context, self.context, fresh)

    def _batch(self, split: str, starts: NDArray[np.int64], steps: int, fresh: bool = True) -> Batch:
        """Windows of so many steps from these starts."""
        places = np.arange(steps + 1)[:, None] + starts  # (T + 1, B)
        tokens = torch.from_numpy(self._texts[split][places].astype(np.int64))
        return Batch(tokens[:-1], tokens[1:], None, fresh, steps * len(starts))

    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        line_end = self.vocabulary.ids.get(LINE_END, -1) if self.metric == "perplexity" else -1
        nats, count, end_nats, ends = 0.0, 0, 0.0, 0
        for batch, skip in self._evaluation_batches(split):
            batch = batch.to(device_of(model))
            logits, _ = model(batch.inputs, skip=skip)  # (T - skip, B, tokens)
            targets = batch.targets[skip:].flatten()
            each = F.cross_entropy(logits.flatten(0, 1), targets, reduction="none").double()
            nats, count = nats + float(each.sum()), count + len(each)
            if line_end >= 0:
                at_end = targets == line_end
                end_nats, ends = end_nats + float(each[at_end].sum()), ends + int(at_end.sum())
        mean = nats / count
        if self.metric == "bpc":
            return {"bpc": mean / float(np.log(2)), "loss": mean}
        scores = {"perplexity": _exponential(mean), "loss": mean}
        if line_end >= 0:
            scores["perplexity_with_line_ends"] = scores["perplexity"]
            scores["perplexity_of_words"] = _exponential((nats - end_nats) / max(count - ends, 1))
        return scores

    def _evaluation_batches(self, split: str) -> Iterator[tuple[Batch, int]]:
        """Windows of equal length side by side, each batch with how many first steps of it do not count."""
        (_, first), *others = windows(len(self._texts[split]) - 1, self.context, self._stride)
        yield self._batch(split, np.zeros(1, np.int64), first), 0
        skip = self.context - self._stride
        size = max(min(EVALUATION_LOGITS // (self._stride * len(self.vocabulary)), self.batch_size), 1)
        starts = np.array([start for start, length in others if length == self.context], np.int64)
        for at in range(0, len(starts), size):
            yield self._batch(split, starts[at : at + size], self.context), skip
        for start, length in others[len(starts) :]:
            yield self._batch(split, np.array([start]), length), skip


def _detached(state: Any) -> Any:
    return state.detach() if isinstance(state, Tensor) else tuple(part.detach() for part in state)


def _exponential(nats: float) -> float:
    """Infinite, rather than an error, where it is too large a number."""
    return float(torch.tensor(nats, dtype=torch.float64).exp())
