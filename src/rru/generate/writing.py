"""Text from a trained model, token by token."""

from collections.abc import Iterator

import torch
from torch import Tensor

from rru.data.vocabulary import Vocabulary
from rru.generate.trained import Trained, check_temperature
from rru.training import RunError


def write(
    trained: Trained,
    prompt: str,
    length: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
) -> Iterator[str]:
    """Goes on with a text, giving each piece of it as soon as it is made.

    **Arguments:**

    - `trained`: a model of words, characters or bytes.
    - `prompt`: the text so far; may be empty.
    - `length`: how many tokens to write.
    - `temperature`: below 1 the likely becomes likelier, above 1 the unlikely.
    - `top_k`: draw from so many likeliest tokens only; default: from all.
    - `seed`: of what is drawn.
    """
    trained.check_kind("words", "characters", "bytes", to="write")
    vocabulary = trained.vocabulary
    assert vocabulary is not None  # or there would be no model
    if len(vocabulary) <= len({vocabulary.padding, vocabulary.unknown}):
        raise RunError(f"{trained.path}: its vocabulary has nothing that could be written")
    if length < 1:
        raise ValueError(f"length must be at least 1, got {length}")
    check_temperature(temperature)
    if not prompt.isascii() and prompt != prompt.encode(errors="replace").decode():
        raise ValueError(f"prompt must be text in UTF-8, got {prompt!r}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    return _written(trained, vocabulary, prompt, length, temperature, top_k, seed)


def unknown_tokens(vocabulary: Vocabulary, prompt: str) -> list[str]:
    """What of a prompt a vocabulary does not know, each once."""
    tokens = prompt.split() if vocabulary.kind == "words" else list(prompt)
    return [token for token in dict.fromkeys(tokens) if vocabulary.unknown in vocabulary.encode(token)]


def _written(
    trained: Trained,
    vocabulary: Vocabulary,
    prompt: str,
    length: int,
    temperature: float,
    top_k: int | None,
    seed: int,
) -> Iterator[str]:
    generator = torch.Generator().manual_seed(seed)
    never = torch.tensor([vocabulary.padding, vocabulary.unknown])
    numbers = vocabulary.encode(prompt).astype("int64")
    state = None
    if len(numbers):
        logits, state = _run(trained, torch.from_numpy(numbers), state)
    else:  # nothing to go on from: any token may be the first
        logits = torch.zeros(len(vocabulary))
    pending: list[int] = []
    for _ in range(length):
        logits[never] = float("-inf")
        number = _drawn(logits / temperature, top_k, generator)
        pending.append(number)
        text = vocabulary.decode(pending)
        if vocabulary.kind != "bytes" or "\ufffd" not in text or len(pending) > 3:  # a character may have four bytes
            yield f" {text}" if vocabulary.kind == "words" else text
            pending = []
        logits, state = _run(trained, torch.tensor([number]), state)


@torch.no_grad()
def _run(trained: Trained, numbers: Tensor, state: object) -> tuple[Tensor, object]:
    """The logits (tokens,) after the last of these tokens, and the state."""
    logits, state = trained.model(numbers[:, None], state, skip=len(numbers) - 1)  # (1, 1, tokens)
    return trained.checked(logits[-1, 0]), state


def _drawn(logits: Tensor, top_k: int | None, generator: torch.Generator) -> int:
    if top_k is not None and top_k < len(logits):
        least = logits.topk(top_k).values[-1]
        logits = logits.masked_fill(logits < least, float("-inf"))
    return int(torch.multinomial(torch.softmax(logits, dim=-1), 1, generator=generator))
