"""Language modelling: predict the next word, character or byte."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.data import SPLITS, Text
from rru.tasks.batches import Batch, Batches, groups, shuffled, windows
from rru.tasks.metrics import BPC, PERPLEXITY
from rru.tasks.models import device_of, language_model
from rru.tasks.task import Task, limited

FRESH_SHARE = 0.1  # fraction of batches in a stateful epoch that start from zeros
LINE_END = "<eos>"
EVALUATION_LOGITS = 1 << 24  # maximum number of logits per batch


class LanguageTask(Task):
    """Predict each token of a text from the tokens before it.

    Stateful training divides the text into `batch_size` equal, contiguous streams. A batch is the next `context` tokens
    of each stream and continues from the state of the previous batch, except for a random tenth of the batches, which
    start from zeros. The rest at the end of the streams, less than a batch, is not used. Stateless training shuffles
    windows that start every `context` // 2 tokens, each from the initial state of the cell.

    Evaluation uses windows that start every `context` // 2 tokens, and scores only the tokens that the previous window
    did not contain. So every token is scored once, and after the first window with at least half a window of context.
    As in training, a window starts from zeros if stateful, else from the initial state of the cell.

    Metrics: `perplexity` for words, the exponential of the mean nats per token; `bpc` for characters and bytes, the
    mean bits per token. If the text has line ends as tokens, `perplexity` counts them. It is then also reported as
    `perplexity_with_line_ends`, and `perplexity_of_words` leaves out the predictions of line ends.

    **Arguments:**

    - `name`: the name of the task.
    - `text`: the tokens and their vocabulary.
    - `context`: tokens per window.
    - `batch_size`: windows or streams per batch.
    - `stateful`: whether training carries the state from batch to batch.
    - `embedding_size`: default size of token embeddings; the options of the model override it.
    - `limit`, `evaluation_limit`: the maximum number of tokens for training, and for validation and test each.
      Default: all.
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
        self.metric = PERPLEXITY if text.vocabulary.kind.startswith("words") else BPC
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

    def _loss(self, model: nn.Module, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        loss, last = model(batch.inputs, state, targets=batch.targets)
        return loss, last if self.stateful else None

    def _training_windows(self) -> int:
        """Returns the number of full windows in the training text."""
        return (self._predictions - self.context) // self._stride + 1

    def _stream_batch(self, number: int, fresh: bool) -> Batch:
        stream = self._predictions // self.batch_size
        return self._batch("train", np.arange(self.batch_size) * stream + number * self.context, self.context, fresh)

    def _batch(self, split: str, starts: NDArray[np.int64], steps: int, fresh: bool = True) -> Batch:
        """Returns the windows of `steps` tokens at the given starts."""
        places = np.arange(steps + 1)[:, None] + starts  # (T + 1, B)
        tokens = torch.from_numpy(self._texts[split][places].astype(np.int64))
        return Batch(tokens[:-1], tokens[1:], None, fresh, steps * len(starts))

    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        line_end = self.vocabulary.ids.get(LINE_END, -1) if self.metric is PERPLEXITY else -1
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
        if self.metric is BPC:
            return {"bpc": mean / float(np.log(2)), "loss": mean}
        scores = {"perplexity": _exponential(mean), "loss": mean}
        if line_end >= 0:
            scores["perplexity_with_line_ends"] = scores["perplexity"]
            scores["perplexity_of_words"] = _exponential((nats - end_nats) / max(count - ends, 1))
        return scores

    def _evaluation_batches(self, split: str) -> Iterator[tuple[Batch, int]]:
        """Yields batches of windows of equal length, with the number of leading steps that are not scored."""
        (_, first), *others = windows(len(self._texts[split]) - 1, self.context, self._stride)
        yield self._batch(split, np.zeros(1, np.int64), first), 0
        skip = self.context - self._stride
        size = max(min(EVALUATION_LOGITS // (self._stride * len(self.vocabulary)), self.batch_size), 1)
        starts = np.array([start for start, length in others if length == self.context], np.int64)
        for at in range(0, len(starts), size):
            yield self._batch(split, starts[at : at + size], self.context), skip
        for start, length in others[len(starts) :]:
            yield self._batch(split, np.array([start]), length), skip


def _exponential(nats: float) -> float:
    """Returns exp(nats), or infinity where `math.exp` would raise OverflowError."""
    return float(torch.tensor(nats, dtype=torch.float64).exp())
