"""Language modelling: predict the next word, character or byte."""

import itertools
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.data import SPLITS, Facts, Text
from rru.tasks.batches import Batch, Batches, groups, shuffled, windows
from rru.tasks.metrics import BPC, PERPLEXITY, bits, exponential
from rru.tasks.models import Architecture, LayerState, SequenceModel, device_of, known_tokens
from rru.tasks.settings import LanguageSettings, TaskSettings, WordSettings
from rru.tasks.task import Task

FRESH_SHARE = 0.1  # fraction of batches in a stateful epoch that start from zeros
LINE_END = "<eos>"
EVALUATION_BATCH = 64  # windows, with `evaluation_context`
EVALUATION_LOGITS = 1 << 24  # maximum number of logits per batch


class LanguageTask(Task):
    """Predict each token of a text from the tokens before it.

    Stateful training divides the text into `batch_size` equal, contiguous streams. A batch is the next `context` tokens
    of each stream and continues from the state of the previous batch, except for a random tenth of the batches, which
    start from zeros. The rest at the end of the streams, less than a batch, is not used. Stateless training shuffles
    windows that start every `context` // 2 tokens, each from the initial state of the cell.

    Evaluation uses windows of `evaluation_context` tokens (default: `context`) that start every half of it, and scores
    only the tokens that the previous window did not contain. So every token is scored once, and after the first window
    with at least half a window of context. As in training, a window starts from zeros if stateful, else from the
    initial state of the cell.

    Metrics: `bpc` for characters and bytes, the mean bits per token; `perplexity` for words (`WordTask`), the
    exponential of the mean nats per token. If the text has line ends as tokens, `perplexity` counts them. It is then
    also reported as `perplexity_with_line_ends`, and `perplexity_of_words` leaves out the predictions of line ends.

    **Arguments:**

    - `text`: the tokens and their vocabulary.
    - `settings`: `context` is the tokens per window, `batch_size` the windows or streams per batch; `limit` and
      `evaluation_limit` count tokens.
    """

    metric = BPC
    settings_class: ClassVar[type[TaskSettings]] = LanguageSettings
    defaults: ClassVar = {
        "ptb-chars": {"context": 512, "batch_size": 64, "stateful": True},
        "enwik8": {"context": 256, "batch_size": 64, "stateful": True},
        "text8": {"context": 256, "batch_size": 64, "stateful": True},
    }
    embedding_sizes: ClassVar = {"ptb-words": 64, "ptb-chars": 16}  # by name; 32 for others
    sample: ClassVar = (80, 400)  # tokens of the test text that the report shows, and that the model adds

    def __init__(self, text: Text, settings: LanguageSettings, *, own: bool = False) -> None:
        super().__init__(text, settings, own=own)
        self.vocabulary, self.stateful = text.vocabulary, settings.stateful
        self.architecture = self.architecture_of(settings, None, len(text.vocabulary))
        self._texts: dict[str, NDArray[np.integer]] = {}
        for split in SPLITS:
            tokens: NDArray[np.integer] = getattr(text, split)
            tokens = tokens[: settings.limited(len(tokens), split)]
            least = 2 if split != "train" else 1 + self.context * (self.batch_size if self.stateful else 1)
            if len(tokens) < least:
                raise ValueError(f"{self.name}: {split} must have at least {least} tokens, got {len(tokens)}")
            self._texts[split] = tokens
        self._predictions = len(self._texts["train"]) - 1
        self._stride = max(self.context // 2, 1)
        self._evaluation_context = settings.evaluation_context or self.context
        wider = settings.evaluation_context is not None  # where training has small batches, evaluation need not
        self._evaluation_batch = max(self.batch_size, EVALUATION_BATCH) if wider else self.batch_size

    @classmethod
    def architecture_of(cls, settings: TaskSettings, facts: Facts | None, tokens: int | None) -> Architecture:
        assert isinstance(settings, LanguageSettings)
        size, tokens = cls.embedding_sizes.get(settings.name, 32), known_tokens(tokens)
        return Architecture(SequenceModel, tokens, tokens=tokens, embedding_size=size, zero_state=settings.stateful)

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

    def _loss(self, model: nn.Module, batch: Batch, state: LayerState) -> tuple[Tensor, LayerState]:
        loss, last = model(batch.inputs, state, targets=batch.targets)
        return loss, last if self.stateful else None

    def _training_windows(self) -> int:
        """Return the number of full windows in the training text."""
        return (self._predictions - self.context) // self._stride + 1

    def _stream_batch(self, number: int, fresh: bool) -> Batch:
        stream = self._predictions // self.batch_size
        return self._batch("train", np.arange(self.batch_size) * stream + number * self.context, self.context, fresh)

    def _batch(self, split: str, starts: NDArray[np.int64], steps: int, fresh: bool = True) -> Batch:
        """Return the windows of `steps` tokens at the given starts."""
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
            return {"bpc": bits(mean), "loss": mean}
        scores = {"perplexity": exponential(mean), "loss": mean}
        if line_end >= 0:
            scores["perplexity_with_line_ends"] = scores["perplexity"]
            scores["perplexity_of_words"] = exponential((nats - end_nats) / max(count - ends, 1))
        return scores

    def _details(self, model: nn.Module) -> dict[str, object]:
        """Return the beginning of the test text, and how the model continues it."""
        given, length = self._texts["test"][: self.sample[0]], self.sample[1]
        generator, vocabulary = torch.Generator().manual_seed(0), self.vocabulary

        def choose(logits: Tensor) -> int:
            chances = torch.softmax(logits.float().cpu(), dim=0)
            chances[[vocabulary.padding, vocabulary.unknown]] = 0
            return int(torch.multinomial(chances, 1, generator=generator))

        try:
            tokens = list(itertools.islice(sampled(model, torch.from_numpy(given.astype(np.int64)), choose), length))
        except RuntimeError:  # no chances to choose by: the weights are not finite, or there are no tokens
            return {}
        prompt = vocabulary.decode(given)
        return {"prompt": prompt, "written": vocabulary.decode([*given.tolist(), *tokens]).removeprefix(prompt)}

    def _evaluation_batches(self, split: str) -> Iterator[tuple[Batch, int]]:
        """Yield batches of windows of equal length, with the number of leading steps that are not scored."""
        steps = self._evaluation_context
        stride = max(steps // 2, 1)
        (_, first), *others = windows(len(self._texts[split]) - 1, steps, stride)
        yield self._batch(split, np.zeros(1, np.int64), first), 0
        skip = steps - stride
        size = max(min(EVALUATION_LOGITS // (stride * len(self.vocabulary)), self._evaluation_batch), 1)
        starts = np.array([start for start, length in others if length == steps], np.int64)
        for at in range(0, len(starts), size):
            yield self._batch(split, starts[at : at + size], steps), skip
        for start, length in others[len(starts) :]:
            yield self._batch(split, np.array([start]), length), skip


class WordTask(LanguageTask):
    """Predict each word of a text from the words before it; the metric is `perplexity`."""

    metric = PERPLEXITY
    settings_class = WordSettings
    defaults: ClassVar = {"ptb-words": {"context": 64, "batch_size": 128, "stateful": False}}
    sample: ClassVar = (20, 100)


@torch.no_grad()
def sampled(model: nn.Module, prompt: Tensor, choose: Callable[[Tensor], int]) -> Iterator[int]:
    """Yield tokens that continue a text, without end.

    **Arguments:** `model`: of text; `prompt`: (T,), may be empty; `choose`: picks a token by the logits (tokens,).
    """
    state: LayerState = None
    while True:
        logits, state = model(prompt[:, None].to(device_of(model)), state, skip=len(prompt) - 1)  # (1, 1, tokens)
        token = choose(logits[-1, 0])
        yield token
        prompt = torch.tensor([token])
