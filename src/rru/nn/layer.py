"""A cell over time, stacked, in one direction or both, called as `torch.nn.LSTM` is."""

from typing import Any, ClassVar, TypedDict, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from rru import scan
from rru.nn import checks
from rru.nn.cell import Cell, PublicState
from rru.scan.lengths import check_lengths
from rru.scan.reference import State


class LayerOptions(TypedDict, total=False):
    """The keyword arguments of every layer, whatever its cell; what they mean: see `rru.RRU`."""

    dropout: float
    batch_first: bool
    bidirectional: bool
    backend: str
    device: torch.device | str | None
    dtype: torch.dtype | None


class Layer(nn.Module):
    """What every recurrent layer shares. A layer of one's own is a subclass that names its `cell_class`.

    **Arguments:** those of `rru.RRU` that are common to all layers; `options` are the cells' own.
    """

    cell_class: ClassVar[type[Cell]]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        dropout: float = 0.0,
        batch_first: bool = False,
        bidirectional: bool = False,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        scan.check_backend(backend)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = checks.positive("num_layers", num_layers)
        self.batch_first = checks.flag("batch_first", batch_first)
        self.bidirectional = checks.flag("bidirectional", bidirectional)
        self.backend = backend
        self.cells: Any = nn.ModuleList()  # one `cell_class` for each layer and direction, in the order of the states
        options |= {"dropout": dropout, "device": device, "dtype": dtype}
        for _ in range(num_layers):
            for _ in range(self.num_directions):
                self.cells.append(self.cell_class(input_size, hidden_size, **options))
            input_size = self.num_directions * self.output_size

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def output_size(self) -> int:
        """Features of an output step in one direction."""
        return self._first.output_size

    @property
    def dropout(self) -> float:
        """The share dropout drops while training; may be set at any time."""
        return self._first.dropout

    @dropout.setter
    def dropout(self, rate: float) -> None:
        checks.rate("dropout", rate)
        for cell in self.cells:
            cell.dropout = rate

    @overload
    def forward(
        self, input: Tensor, state: PublicState | None = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor, Any]: ...

    @overload
    def forward(
        self, input: PackedSequence, state: PublicState | None = None, *, lengths: None = None
    ) -> tuple[PackedSequence, Any]: ...

    def forward(
        self, input: Tensor | PackedSequence, state: PublicState | None = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Any]:
        """Runs over whole sequences.

        **Arguments:**

        - `input`: (T, B, m), or (B, T, m) with `batch_first`; (T, m) for a single sequence; or a PackedSequence.
        - `state`: the states to start from, (layers * directions, B, n), without B for a single sequence; for the
          LSTMs a pair (h, c) of these. Default: every cell's own initial state.
        - `lengths`: (B,), how many steps of each sequence count. What the input holds after them does not matter.

        **Returns:** the outputs of the last layer, in the form of `input`, with directions * p features and zeros
        after each sequence's end; and every cell's state at each sequence's end, in the form of `state`.
        """
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise ValueError("lengths must not be given with a PackedSequence, which has its own")
            return self._forward_packed(input, state)
        first = self._first
        batched = "(batch, steps, input_size)" if self.batch_first else "(steps, batch, input_size)"
        first.check_input(input, ranks={2: "(steps, input_size)", 3: batched})
        if input.dim() == 3:
            x = input.transpose(0, 1) if self.batch_first else input  # (T, B, m)
            outputs, last = self._run(x, state, lengths)
            return outputs.transpose(0, 1) if self.batch_first else outputs, first.public_state(last)
        outputs, last = self._run(input.unsqueeze(1), state, lengths, batched=False)
        return outputs.squeeze(1), first.public_state(tuple(part.squeeze(1) for part in last))

    def _forward_packed(self, input: PackedSequence, state: PublicState | None) -> tuple[PackedSequence, Any]:
        x, lengths = pad_packed_sequence(input)  # (T, B, m), (B,), both in the order before packing
        self._first.check_input(x, ranks={3: "packed from steps of (input_size,)"})
        outputs, last = self._run(x, state, lengths)
        if input.sorted_indices is not None:  # pack as the input was packed, so that data matches data row by row
            outputs, lengths = outputs[:, input.sorted_indices], lengths[input.sorted_indices.cpu()]
        packed = pack_padded_sequence(outputs, lengths)
        packed = PackedSequence(packed.data, packed.batch_sizes, input.sorted_indices, input.unsorted_indices)
        return packed, self._first.public_state(last)

    def _run(
        self, x: Tensor, state: PublicState | None, lengths: Tensor | None, batched: bool = True
    ) -> tuple[Tensor, State]:
        """All layers and directions over x (T, B, m): outputs (T, B, directions * p) and states (cells, B, n)."""
        steps, batch = x.shape[:2]
        if steps == 0:
            raise ValueError("input must have at least one step, got 0")
        lengths = _checked_lengths(lengths, steps, batch, x.device)
        before = self._states_before(state, batch, batched)
        after: list[State] = []
        for layer in range(self.num_layers):
            outputs: list[Tensor] = []
            for direction in range(self.num_directions):
                index = layer * self.num_directions + direction
                cell: Cell = self.cells[index]
                cell.run_pre_hooks(x, before[index])
                output, last = scan.run(
                    cell,
                    x,
                    before[index],
                    lengths=lengths,
                    seed=cell.new_seed(x.device),
                    reverse=direction == 1,
                    backend=self.backend,
                )
                outputs.append(output)
                after.append(last)
            x = torch.cat(outputs, dim=-1) if self.bidirectional else outputs[0]
        return x, tuple(torch.stack(parts) for parts in zip(*after, strict=True))

    def initial_state(self, batch: int) -> PublicState:
        """The state that sequences start from where none is given, in the form of `forward`'s: (cells, B, n) each."""
        parts = zip(*(cell.initial_state(batch) for cell in self.cells), strict=True)
        return self._first.public_state(tuple(torch.stack(part) for part in parts))

    def _states_before(self, state: PublicState | None, batch: int, batched: bool) -> list[State]:
        """The state each cell starts from."""
        if state is None:
            return [cell.initial_state(batch) for cell in self.cells]
        count, n = len(self.cells), self.hidden_size
        if batched:
            parts = self._first.checked_state(state, (count, batch, n), "(num_layers * directions, batch, hidden_size)")
        else:
            parts = self._first.checked_state(state, (count, n), "(num_layers * directions, hidden_size)")
            parts = tuple(part.unsqueeze(1) for part in parts)
        return list(zip(*parts, strict=True))

    def reset_parameters(self) -> None:
        """Gives all weights new initial values, from torch's generator."""
        for cell in self.cells:
            cell.reset_parameters()

    def flatten_parameters(self) -> None:
        """Does nothing: here so that code written for `torch.nn.LSTM` runs unchanged."""

    def extra_repr(self) -> str:
        shown = ("num_layers", "batch_first", "bidirectional", "backend")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)

    @property
    def _first(self) -> Cell:
        cell: Cell = self.cells[0]
        return cell


def _checked_lengths(lengths: Tensor | None, steps: int, batch: int, device: torch.device) -> Tensor | None:
    if lengths is None:
        return None
    if not isinstance(lengths, Tensor):
        lengths = torch.tensor(lengths, dtype=None if lengths else torch.int64)
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be integers, got {lengths.dtype}")
    lengths = lengths.to(torch.int64)
    if lengths.dim() == 0 and batch == 1:
        lengths = lengths.reshape(1)  # a single sequence's
    checks.shape("lengths", lengths, (batch,), "(batch,)")
    if not torch.compiler.is_compiling() and _has_values(lengths):
        check_lengths(lengths, steps)
    return lengths.to(device)


def _has_values(tensor: Tensor) -> bool:
    """Whether the numbers in a tensor can be looked at: not if it is on meta, or stands for many under vmap."""
    return type(tensor) is Tensor and not tensor.is_meta and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
