"""Many sequences at once, one step at a time: each session keeps its state, any of them advance together."""

from collections.abc import Hashable, Iterable, Sequence

import torch
from torch import Tensor, nn

from rru.nn import Layer
from rru.tasks import SequenceModel


class Stream:
    """The states of many independent sequences, on one model.

    ```python
    stream = rru.stream(rru.RRU(8, 32).eval())
    stream.open(["anna", "ben", "carl"])
    outputs = stream.step(["anna", "carl"], torch.randn(2, 8))  # (2, 32); ben waits
    stream.close(["ben"])
    ```

    Sessions are named by anything that can be a dict's key. A step runs all that are named as one batch, so a thousand
    sessions cost far less than a thousand calls.

    **Arguments:** `model`: a layer, or a task's sequence model; in evaluation mode.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        layer = model.layers if isinstance(model, SequenceModel) else model
        if not isinstance(layer, Layer):
            raise TypeError(f"stream takes a layer of rru or a task's sequence model, got {type(model).__name__}")
        if layer.bidirectional:
            raise ValueError("stream takes a model that runs forwards only: a step cannot know what comes later")
        if model.training:
            raise ValueError("stream takes a model in evaluation mode: call .eval() first")
        self._layer = layer
        self._places: dict[Hashable, int] = {}
        self._free: list[int] = []
        self._state = self._initial(0)

    def __len__(self) -> int:
        """How many sessions are open."""
        return len(self._places)

    def __contains__(self, session: Hashable) -> bool:
        return session in self._places

    def open(self, sessions: Iterable[Hashable]) -> None:
        """Begins sessions, each from the model's initial state."""
        sessions = list(sessions)
        for session in sessions:
            if session in self._places:
                raise ValueError(f"session {session!r} is open already")
        if len(set(sessions)) != len(sessions):
            raise ValueError("sessions must differ, got some twice")
        self._make_room(len(sessions))
        places = [self._free.pop() for _ in sessions]
        self._put(torch.tensor(places, dtype=torch.long), self._initial(len(places)))
        self._places.update(zip(sessions, places, strict=True))

    def close(self, sessions: Iterable[Hashable]) -> None:
        """Ends sessions and forgets their states."""
        for session, place in {session: self._place(session) for session in sessions}.items():
            del self._places[session]
            self._free.append(place)

    @torch.no_grad()
    def step(self, sessions: Sequence[Hashable], inputs: Tensor) -> Tensor:
        """One step of some sessions.

        **Arguments:**

        - `sessions`: which, each once.
        - `inputs`: a row for each: (B, m), or (B,) tokens.

        **Returns:** (B, p) outputs of a layer, or logits of a model.
        """
        if len(inputs) != len(sessions):
            raise ValueError(f"inputs must have a row for each of {len(sessions)} sessions, got {len(inputs)}")
        if len(set(sessions)) != len(sessions):
            raise ValueError("sessions must differ, got some twice")
        places = torch.tensor([self._place(session) for session in sessions], dtype=torch.long)
        state = tuple(part[:, places] for part in self._state)  # (layers, B, n) each
        time = 1 if self._layer.batch_first else 0
        output, last = self.model(inputs.unsqueeze(time), state if len(state) > 1 else state[0])
        self._put(places, last if isinstance(last, tuple) else (last,))
        result: Tensor = output.squeeze(time)
        return result

    def state(self, session: Hashable) -> Tensor | tuple[Tensor, ...]:
        """A session's state, (layers, n) or, for the LSTMs, a pair of these."""
        place = self._place(session)
        parts = tuple(part[:, place].clone() for part in self._state)
        return parts if len(parts) > 1 else parts[0]

    def _place(self, session: Hashable) -> int:
        if session not in self._places:
            raise KeyError(f"no session {session!r} is open")
        return self._places[session]

    def _put(self, places: Tensor, state: Sequence[Tensor]) -> None:
        for kept, new in zip(self._state, state, strict=True):
            kept[:, places] = new

    def _make_room(self, wanted: int) -> None:
        """Has as many free places, and as many again: room grows in proportion."""
        before = self._state[0].shape[1]
        missing = wanted - len(self._free)
        if missing <= 0:
            return
        more = max(missing, before)
        self._state = tuple(
            torch.cat([part, part.new_zeros(len(part), more, part.shape[2])], 1) for part in self._state
        )
        self._free += range(before, before + more)

    @torch.no_grad()
    def _initial(self, batch: int) -> tuple[Tensor, ...]:
        """The first state of so many sequences, (layers, B, n) for each part of it."""
        owner = self.model if isinstance(self.model, SequenceModel) else self._layer
        state = owner.initial_state(batch)
        return state if isinstance(state, tuple) else (state,)


def stream(model: nn.Module) -> Stream:
    """A `Stream` on a model: many sequences at once, one step at a time."""
    return Stream(model)
