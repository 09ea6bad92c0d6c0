"""Step many independent sequences through one model. Each session has its own state; any subset can step together."""

from collections.abc import Hashable, Iterable, Sequence

import torch
from torch import Tensor, nn

from rru.nn import Layer
from rru.scan.reference import State
from rru.scan.resets import check_resets
from rru.tasks import Classifier, Recurrent, SequenceModel


class Stream:
    """Run many independent sequences on one model, one step at a time, and keep their states.

    ```python
    stream = rru.stream(rru.RRU(8, 32).eval())
    stream.open(["anna", "ben", "carl"])
    outputs = stream.step(["anna", "carl"], torch.randn(2, 8))  # (2, 32); ben waits
    stream.step(["anna", "carl"], torch.randn(2, 8), resets=torch.tensor([True, False]))  # anna starts anew
    stream.close(["ben"])
    ```

    Any hashable value can name a session. A step runs the given sessions as one batch, so stepping a thousand sessions
    costs far less than a thousand calls.

    **Arguments:** `model`: a layer or the model of a task, not bidirectional, in evaluation mode.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        layer = model.layers if isinstance(model, Recurrent) else model
        if not isinstance(layer, Layer):
            raise TypeError(f"stream takes a layer of rru or the model of a task, got {type(model).__name__}")
        if layer.bidirectional:
            raise ValueError("stream needs a unidirectional model: a step cannot see later inputs")
        if model.training:
            raise ValueError("stream needs a model in evaluation mode: call .eval() first")
        self._start = model if isinstance(model, Recurrent) else layer  # gives the initial state of sessions
        self._stepper = layer.stepper()
        self._places: dict[Hashable, int] = {}  # index of each session in `_pool`
        self._free: list[int] = []
        self._alone: dict[int, list[State]] = {}  # by index: states newer than `_pool`, of sessions that last ran alone
        self._pool = self._initial(0)  # (places, layers, n) for each part of the state

    def __len__(self) -> int:
        """Return the number of open sessions."""
        return len(self._places)

    def __contains__(self, session: Hashable) -> bool:
        return session in self._places

    def open(self, sessions: Iterable[Hashable]) -> None:
        """Open sessions in the model's initial state; raise ValueError if one is open already."""
        sessions = list(sessions)
        for session in sessions:
            if session in self._places:
                raise ValueError(f"session {session!r} is already open")
        if len(set(sessions)) != len(sessions):
            raise ValueError("sessions must be distinct, got duplicates")
        self._make_room(len(sessions))
        places = [self._free.pop() for _ in sessions]
        self._restart(places)
        self._places.update(zip(sessions, places, strict=True))

    def _restart(self, places: list[int]) -> None:
        """Put the initial state at these places."""
        for place in places:
            self._alone.pop(place, None)
        for pool, new in zip(self._pool, self._initial(len(places)), strict=True):
            pool[places] = new

    def close(self, sessions: Iterable[Hashable]) -> None:
        """Close sessions and drop their states; raise KeyError if one is not open."""
        for session, place in {session: self._place(session) for session in sessions}.items():
            del self._places[session]
            self._alone.pop(place, None)
            self._free.append(place)

    def step(self, sessions: Sequence[Hashable], inputs: Tensor, resets: Tensor | None = None) -> Tensor:
        """Run one step of the given sessions as one batch.

        **Arguments:**

        - `sessions`: the sessions to step, without duplicates.
        - `inputs`: one row per session: (B, m) features or (B,) tokens.
        - `resets`: boolean, (B,): which sessions go back to the model's initial state before the step.

        **Returns:** (B, p): the outputs of a layer, or the logits of a model; those of a classifier are of the classes
        after this step.
        """
        if len(inputs) != len(sessions):
            raise ValueError(f"inputs must have a row for each of {len(sessions)} sessions, got {len(inputs)}")
        places = [self._place(session) for session in sessions]
        if resets is not None:
            check_resets(resets, (len(places),), "(sessions,)")
            self._restart([place for place, is_reset in zip(places, resets.tolist(), strict=True) if is_reset])
        if isinstance(self.model, Recurrent):
            return self._step_model(self.model, places, inputs)
        return self._step_layer(places, inputs)[0]

    @torch.no_grad()
    def _step_model(self, model: Recurrent, places: list[int], inputs: Tensor) -> Tensor:
        output, states = self._step_layer(places, inputs)
        if isinstance(model, SequenceModel):
            return model.outputs(output)
        logits: Tensor = model.head(states[-1][0] if isinstance(model, Classifier) else output)  # of h, or of o
        return logits

    def _step_layer(self, places: list[int], inputs: Tensor) -> tuple[Tensor, list[State]]:
        """Return the output (B, p) and the state of each cell."""
        if len(places) == 1:  # a single session needs no copy to and from the pool
            (place,) = places
            before = self._alone.get(place) or self._gather(places)
            output, self._alone[place] = self._run(inputs, before)
            return output, self._alone[place]
        if len(set(places)) != len(places):
            raise ValueError("sessions must be distinct, got duplicates")
        for place in self._alone.keys() & set(places):
            self._scatter([place], self._alone.pop(place))
        output, after = self._run(inputs, self._gather(places))
        self._scatter(places, after)
        return output, after

    def _run(self, inputs: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        if isinstance(self.model, Recurrent):
            return self.model.step(self._stepper, inputs, states)
        return self._stepper.run(inputs, states)

    def _gather(self, places: list[int]) -> list[State]:
        """Read the states at these places from the pool, one state per cell."""
        taken = [part[places].unbind(1) for part in self._pool]  # each cell's (B, n), for each part
        return [tuple([part.contiguous() for part in parts]) for parts in zip(*taken, strict=True)]

    def _scatter(self, places: list[int], states: list[State]) -> None:
        """Write states to these places in the pool."""
        for pool, parts in zip(self._pool, zip(*states, strict=True), strict=True):
            pool[places] = torch.stack(parts, 1)

    def state(self, session: Hashable) -> Tensor | tuple[Tensor, ...]:
        """Return a session's state: (layers, n), or a tuple of these, one for each part of it."""
        place = self._place(session)
        states = self._alone.get(place) or self._gather([place])
        parts = tuple(torch.cat(part) for part in zip(*states, strict=True))
        return parts if len(parts) > 1 else parts[0]

    def _place(self, session: Hashable) -> int:
        if session not in self._places:
            raise KeyError(f"session {session!r} is not open")
        return self._places[session]

    @torch.inference_mode(False)  # a tensor made in inference mode could not be written outside it
    def _make_room(self, wanted: int) -> None:
        """Grow the pool if fewer than `wanted` places are free; at least double it, so that it rarely grows."""
        before = len(self._pool[0])
        missing = wanted - len(self._free)
        if missing <= 0:
            return
        more = max(missing, before)
        self._pool = tuple(torch.cat([part, part.new_zeros(more, *part.shape[1:])]) for part in self._pool)
        self._free += range(before, before + more)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _initial(self, batch: int) -> State:
        """Return the initial state of `batch` sessions, (B, layers, n) for each part."""
        state = self._start.initial_state(batch)
        return tuple(part.transpose(0, 1) for part in (state if isinstance(state, tuple) else (state,)))


def stream(model: nn.Module) -> Stream:
    """Return a `Stream`, which runs many sequences on one model, one step at a time."""
    return Stream(model)
