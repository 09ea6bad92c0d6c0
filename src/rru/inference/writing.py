"""Write text with a trained model, token by token."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rru.data.vocabulary import Vocabulary, tokens_of
from rru.inference.sampling import check_temperature
from rru.tasks import sampled
from rru.training import RunError

if TYPE_CHECKING:
    from rru.inference.trained import Trained


def write(
    trained: Trained,
    prompt: str,
    length: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
) -> Iterator[str]:
    """Continue a text. Yield each piece of text as soon as it is sampled.

    **Arguments:**

    - `trained`: a model trained on words, characters or bytes.
    - `prompt`: the beginning of the text; may be empty.
    - `length`: the number of tokens to write.
    - `temperature`: divides the logits. Below 1 the text is more predictable, above 1 more varied.
    - `top_k`: sample from the k most likely tokens only. Default: from all.
    - `seed`: random seed.
    """
    trained.check_command("write")
    vocabulary = trained.vocabulary
    assert vocabulary is not None  # every model of these kinds has one
    if len(vocabulary) <= len({vocabulary.padding, vocabulary.unknown}):
        raise RunError(f"{trained.path}: the vocabulary must have a token besides padding and unknown")
    if not isinstance(prompt, str):
        raise TypeError(f"prompt must be a text, got {prompt!r} of type {type(prompt).__name__}")
    if length < 1:
        raise ValueError(f"length must be at least 1, got {length}")
    check_temperature(temperature)
    if not prompt.isascii() and prompt != prompt.encode(errors="replace").decode():
        raise ValueError(f"prompt must be valid UTF-8, got {prompt!r}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    generator = torch.Generator().manual_seed(seed)
    return _sample(
        trained, vocabulary, prompt, length, lambda logits: _sample_token(logits / temperature, top_k, generator)
    )


def unknown_tokens(vocabulary: Vocabulary, prompt: str) -> list[str]:
    """Return the words or characters of a prompt that are not in the vocabulary, without duplicates."""
    tokens = list(prompt) if vocabulary.kind == "bytes" else tokens_of(prompt, vocabulary.kind)
    return [token for token in dict.fromkeys(tokens) if vocabulary.unknown in vocabulary.encode(token)]


def _sample(
    trained: Trained, vocabulary: Vocabulary, prompt: str, length: int, choose: Callable[[Tensor], int]
) -> Iterator[str]:
    excluded = torch.tensor([vocabulary.padding, vocabulary.unknown])

    def pick(logits: Tensor) -> int:
        return choose(trained.checked(logits).index_fill(0, excluded, float("-inf")))

    ids = torch.from_numpy(vocabulary.encode(prompt).astype("int64"))
    first = [] if len(ids) else [pick(torch.zeros(len(vocabulary)))]  # uniform
    tokens = itertools.chain(first, sampled(trained.model, ids if len(ids) else torch.tensor(first), pick))
    pending: list[int] = []
    for token in itertools.islice(tokens, length):
        pending.append(token)
        text = vocabulary.decode(pending)
        if vocabulary.kind != "bytes" or "\ufffd" not in text or len(pending) > 3:  # up to 4 bytes per character
            yield f" {text}" if vocabulary.spaced(token) else text
            pending = []


def _sample_token(logits: Tensor, top_k: int | None, generator: torch.Generator) -> int:
    if top_k is not None and top_k < len(logits):
        threshold = logits.topk(top_k).values[-1]
        logits = logits.masked_fill(logits < threshold, float("-inf"))
    return int(torch.multinomial(torch.softmax(logits, dim=-1), 1, generator=generator))
