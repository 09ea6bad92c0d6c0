"""The base class of all layers: runs cells over sequences, with the call signature of `torch.nn.LSTM`."""

import inspect
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Never, NoReturn, overload

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from rru import scan
from rru.nn import checks, resets, tracing
from rru.nn.cell import Cell
from rru.nn.checks import PublicState
from rru.nn.options import MAX_PARTS, Option, declared, parameters_of
from rru.nn.signatures import describe, known_arguments, refuse_unnamed
from rru.scan.lengths import check_lengths
from rru.scan.reference import State


class Layer(nn.Module):
    """Base class of recurrent layers. To make your own, subclass it and set `cell_class`.

    The layer takes the arguments below and those of the cell's constructor.
    """

    cell_class: ClassVar[type[Cell]]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: Annotated[
            int,
            Option(
                "number of stacked layers; each reads the outputs of the previous one", at_least=1, at_most=MAX_PARTS
            ),
        ] = 1,
        *unnamed: Never,
        batch_first: Annotated[bool, Option("inputs and outputs are (B, T, ...) instead of (T, B, ...)")] = False,
        bidirectional: Annotated[
            bool, Option("also run over each sequence from its end; the outputs are concatenated")
        ] = False,
        backend: Annotated[
            str,
            Option(
                "what runs the recurrence: 'auto', 'reference' (plain PyTorch), 'native' (C++, on CPUs) or 'fused' "
                "(few kernels, for GPUs)"
            ),
        ] = "auto",
        **options: Any,
    ) -> None:
        super().__init__()
        scan.check_backend(backend)
        if unnamed:
            refuse_unnamed(type(self), ("input_size", "hidden_size", "num_layers"), unnamed)
        options = known_arguments(type(self), options, inspect.signature(type(self)).parameters)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = checks.positive("num_layers", num_layers)
        self.batch_first = checks.flag("batch_first", batch_first)
        self.bidirectional = checks.flag("bidirectional", bidirectional)
        self.backend = backend
        cells: list[Cell] = []
        for _ in range(num_layers):
            cells += [self.cell_class(input_size, hidden_size, **options) for _ in range(self.num_directions)]
            input_size = self.num_directions * cells[0].output_size
        # One cell per layer and direction, in the order of the states. nn.ModuleList has no type for its elements.
        self.cells: Sequence[Cell] = nn.ModuleList(cells)  # type: ignore[assignment]

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        if hasattr(cls, "cell_class") and cls.__init__ is Layer.__init__:
            of_layer, of_cell = parameters_of(Layer), parameters_of(cls.cell_class)
            last = [of_cell.pop(name) for name in ("device", "dtype") if name in of_cell]
            first = [of_layer.pop(name) for name in ("input_size", "hidden_size", "num_layers")]
            cell_options = [option for name, option in of_cell.items() if name not in ("input_size", "hidden_size")]
            known = cls.cell_class.arguments | declared(Layer, leave_out=("input_size", "hidden_size"))
            describe(cls, [*first, *cell_options, *of_layer.values(), *last], known)

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def output_size(self) -> int:
        """The number of features per output step and direction."""
        size: int = self._first.output_size
        return size

    @property
    def dropout(self) -> float:
        """The dropout rate during training; can be changed at any time."""
        return self._first.dropout

    @dropout.setter
    def dropout(self, rate: float) -> None:
        for cell in self.cells:
            cell.dropout = rate

    @overload
    def forward(
        self,
        input: Tensor,
        state: PublicState | None = None,
        *,
        lengths: Tensor | None = None,
        hx: PublicState | None = None,
        resets: Tensor | None = None,
        reset_state: PublicState | None = None,
    ) -> tuple[Tensor, Any]: ...

    @overload
    def forward(
        self,
        input: PackedSequence,
        state: PublicState | None = None,
        *,
        lengths: None = None,
        hx: PublicState | None = None,
        resets: Tensor | None = None,
        reset_state: PublicState | None = None,
    ) -> tuple[PackedSequence, Any]: ...

    def forward(
        self,
        input: Tensor | PackedSequence,
        state: PublicState | None = None,
        *,
        lengths: Tensor | None = None,
        hx: PublicState | None = None,
        resets: Tensor | None = None,
        reset_state: PublicState | None = None,
    ) -> tuple[Tensor | PackedSequence, Any]:
        """Run over whole sequences.

        **Arguments:**

        - `input`: (T, B, m), or (B, T, m) with `batch_first`; (T, m) for a single sequence; or a PackedSequence.
        - `state`: the initial states, (layers * directions, B, n), without B for a single sequence; for the LSTMs a
          pair (h, c) of these. Default: the initial state of each cell.
        - `lengths`: (B,), the number of valid steps of each sequence. Inputs after them are ignored.
        - `hx`: torch's name for `state`.
        - `resets`: boolean, (T, B), or (B, T) with `batch_first`; (T,) for a single sequence. Where it is set, the
          sequence starts anew: that step sees the initial state instead of what the steps before left, and no gradient
          flows to them. Not for bidirectional layers.
        - `reset_state`: the state that resets start from, in the form of `state`. Default: the initial state of each
          cell, whatever `state` is.

        **Returns:** the outputs of the last layer, laid out like `input`, with directions * p features and zeros
        after the end of each sequence; and the final state of every cell, shaped like `state`.
        """
        if isinstance(input, Proxy):
            given = {"lengths": lengths, "hx": hx, "resets": resets, "reset_state": reset_state}
            return tracing.fx_node(self, input, state=state, **given)
        state = checks.one_state(state, hx)
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise ValueError("lengths must not be given with a PackedSequence, which has its own")
            return self._forward_packed(input, state, resets, reset_state)
        first = self._first
        batched = "(batch, steps, input_size)" if self.batch_first else "(steps, batch, input_size)"
        checks.input_of(first, input, ranks={2: "(steps, input_size)", 3: batched})
        if input.dim() == 3:
            x = input.transpose(0, 1) if self.batch_first else input  # (T, B, m)
            outputs, last = self._run(x, state, lengths, resets, reset_state)
            return outputs.transpose(0, 1) if self.batch_first else outputs, first.public_state(last)
        outputs, last = self._run(input.unsqueeze(1), state, lengths, resets, reset_state, batched=False)
        return outputs.squeeze(1), first.public_state(tuple(part.squeeze(1) for part in last))

    def _forward_packed(
        self, input: PackedSequence, state: PublicState | None, resets: Tensor | None, reset_state: PublicState | None
    ) -> tuple[PackedSequence, Any]:
        pad = scan.onnx.pad_packed if scan.onnx.is_exporting() else pad_packed_sequence
        x, lengths = pad(input)  # (T, B, m), (B,), in the original order of sequences
        checks.input_of(self._first, x, ranks={3: "packed from steps of (input_size,)"})
        outputs, last = self._run(x, state, lengths, resets, reset_state)
        if input.sorted_indices is not None:  # pack in the input's order, so that rows of `data` correspond
            outputs, lengths = outputs[:, input.sorted_indices], lengths[input.sorted_indices.cpu()]
        packed = pack_padded_sequence(outputs, lengths)
        packed = PackedSequence(packed.data, packed.batch_sizes, input.sorted_indices, input.unsorted_indices)
        return packed, self._first.public_state(last)

    def _run(
        self,
        x: Tensor,
        state: PublicState | None,
        lengths: Tensor | None,
        reset_mask: Tensor | None,
        reset_state: PublicState | None,
        batched: bool = True,
    ) -> tuple[Tensor, State]:
        """Run all layers and directions over x (T, B, m).

        **Returns:** outputs (T, B, directions * p) and final states, (cells, B, n) each.
        """
        steps, batch = x.shape[:2]
        if steps == 0:
            raise ValueError("input must have at least one step, got 0")
        lengths = _checked_lengths(lengths, steps, batch, x.device)
        for cell in self.cells:
            checks.whole_weight(type(self).__name__, cell.some_weight(), x)
        run = tracing.same_graph_without_gradients(scan.run)
        before = self._states_before(state, batch, batched)
        mask, starts = self._reset_mask(reset_mask, reset_state, x, lengths, batched), before
        if mask is not None and (state is not None or reset_state is not None):  # else both are the initial state
            starts = self._states_before(reset_state, batch, batched)
        after: list[State] = []
        for layer in range(self.num_layers):
            outputs: list[Tensor] = []
            for direction in range(self.num_directions):
                index = layer * self.num_directions + direction
                cell = self.cells[index]
                _run_pre_hooks(cell, x, before[index])
                seed, reverse = cell.new_seed(x.device), direction == 1
                at = None if mask is None else scan.Resets(mask, starts[index])
                inputs = scan.ScanInputs(x, before[index], lengths, seed, reverse, at)
                output, last = run(cell, inputs, self.backend)
                outputs.append(output)
                after.append(last)
            x = torch.cat(outputs, dim=-1) if self.bidirectional else outputs[0]
        if len(after) == 1:
            return x, tuple([part.unsqueeze(0) for part in after[0]])  # faster than a copy
        return x, tuple(torch.stack(parts) for parts in zip(*after, strict=True))

    def initial_state(self, batch: int) -> PublicState:
        """Return the default initial state, in the form that `forward` takes: (cells, B, n) each."""
        parts = zip(*(cell.initial_state(batch) for cell in self.cells), strict=True)
        return self._first.public_state(tuple(torch.stack(part) for part in parts))

    def stepper(self) -> scan.Stepper:
        """Return a `rru.scan.Stepper`, the fastest way to run this layer step by step without gradients."""
        if self.bidirectional:
            raise ValueError("bidirectional must be False to run step by step: a step cannot see later inputs")
        return scan.Stepper(self.cells)

    def _states_before(self, state: PublicState | None, batch: int, batched: bool) -> list[State]:
        """Return the initial state of each cell."""
        if state is None:
            return [cell.initial_state(batch) for cell in self.cells]
        cells, n = len(self.cells), self.hidden_size
        expected = (cells, batch, n) if batched else (cells, n)
        meaning = f"(num_layers * directions, {'batch, ' * batched}hidden_size)"
        parts = checks.state_of(self._first, state, expected, meaning, type(self).__name__)
        if not batched:
            parts = tuple(part.unsqueeze(1) for part in parts)
        return list(zip(*parts, strict=True))

    def _reset_mask(
        self, given: Tensor | None, state: PublicState | None, x: Tensor, lengths: Tensor | None, batched: bool
    ) -> Tensor | None:
        """Return the mask of resets (T, B), after checking that it can be used."""
        if given is None:
            if state is not None:
                raise ValueError(resets.NO_MASK)
            return None
        if self.bidirectional:
            raise ValueError(resets.BIDIRECTIONAL)
        return resets.reset_mask(given, x, lengths, batched=batched, batch_first=self.batch_first)

    def reset_parameters(self) -> None:
        """Initialize all weights, using torch's random number generator."""
        for cell in self.cells:
            cell.reset_parameters()

    def flatten_parameters(self) -> None:
        """Do nothing. Exists so that code written for `torch.nn.LSTM` runs unchanged."""

    def __getattr__(self, name: str) -> Any:
        checks.refuse_torchs_weight(self, name, ".cells")
        return super().__getattr__(name)

    def __prepare_scriptable__(self) -> NoReturn:  # called by torch.jit.script
        tracing.refuse_scripting(self)

    def extra_repr(self) -> str:
        shown = ("num_layers", "batch_first", "bidirectional", "backend")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)

    @property
    def _first(self) -> Cell:
        return self.cells[0]


def _run_pre_hooks(cell: Cell, *arguments: object) -> None:
    """Run a cell's forward pre-hooks. Pruning needs them, and a layer never calls its cells as modules."""
    for key, hook in cell._forward_pre_hooks.items():
        hook(cell, arguments, *([{}] if key in cell._forward_pre_hooks_with_kwargs else []))


def _checked_lengths(lengths: Tensor | None, steps: int, batch: int, device: torch.device) -> Tensor | None:
    if lengths is None:
        return None
    if not isinstance(lengths, Tensor):
        lengths = torch.tensor(lengths, device="cpu")
        lengths = lengths if lengths.numel() else lengths.long()  # an empty list becomes floats
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be integers, got {lengths.dtype}")
    lengths = lengths.to(torch.int64)
    if lengths.dim() == 0 and batch == 1:
        lengths = lengths.reshape(1)  # the length of a single sequence
    checks.shape("lengths", lengths, (batch,), "(batch,)")
    if not torch.compiler.is_compiling() and _has_values(lengths):
        check_lengths(lengths, steps)
    return lengths.to(device)


def _has_values(tensor: Tensor) -> bool:
    """Return whether the values of a tensor can be read without waiting for a device, and not inside torch.func."""
    return type(tensor) is Tensor and tensor.is_cpu and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
