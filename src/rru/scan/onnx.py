"""The scan for `torch.onnx.export`: one loop, which becomes an ONNX Scan node.

The body of the loop is the cell's `step`, in torch operators, so every cell can be exported, including user-defined
ones. Time and batch may be dynamic. A packed sequence is exported too, up to the layer that reads it.
"""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from rru.scan import reference
from rru.scan.cells import AnyCell
from rru.scan.reference import ScanInputs, State


def is_exporting() -> bool:
    """Return whether `torch.onnx.export` is recording this call; raise if it is the old exporter."""
    if torch.compiler.is_exporting():
        from torch.onnx._internal.exporter import _flags

        return _flags._is_onnx_exporting  # strict export takes torch.onnx.is_in_onnx_export() to be False
    if torch.compiler.is_compiling():
        return False
    if torch._C._get_tracing_state() is not None and torch.onnx.is_in_onnx_export():
        raise RuntimeError("torch.onnx.export with dynamo=False cannot export rru layers: use dynamo=True, the default")
    return False


def scan(cell: AnyCell, inputs: ScanInputs) -> tuple[Tensor, State]:
    """Run a cell like `reference.scan`, but without gradients. Raise if dropout is on."""
    from torch._higher_order_ops.scan import scan_op  # slow to import and rarely needed

    x, state, lengths, seed, reverse, resets = inputs
    if seed is not None:
        raise RuntimeError("dropout cannot be exported to ONNX: call eval() on the model first")
    if isinstance(x.shape[0], int) and x.shape[0] == 1:  # a single step needs no loop
        return reference.scan(cell, inputs)
    names, bound = list(cell.weight_shapes), cell.bound(reference.autocast_dtype(x.device.type))
    ended = None
    if lengths is not None:
        steps = torch.arange(x.shape[0], device=x.device)
        ended = (steps.unsqueeze(1) >= lengths).unsqueeze(2)  # (T, B, 1)
        x = x.masked_fill(ended, 0)
    reset_to = () if resets is None else resets.state
    sequences = [bound.project(x), *([] if ended is None else [ended]), *([] if resets is None else [resets.mask])]
    if reverse:
        sequences = [sequence.flip(0) for sequence in sequences]

    def body(*tensors: Tensor) -> list[Tensor]:
        rest = iter(tensors)
        groups = state, sequences, reset_to
        before, (projected, *masks), new_state = (tuple(next(rest) for _ in group) for group in groups)
        if new_state:
            before = reference.reset(before, masks[-1], new_state)
        on_weights = copy.copy(bound)  # the body may only use tensors that are passed to it
        on_weights.__dict__ |= dict(zip(names, rest, strict=True))
        features, after = on_weights.step(projected, before, None)
        if ended is not None:
            after = tuple(torch.where(masks[0], old, new) for old, new in zip(before, after, strict=True))
        return [result.clone() for result in (*after, features)]  # results must not share memory

    start_anew = [part.clone() for part in reset_to]  # it may be the state itself, and a scan allows no shared memory
    given = ([*state], sequences, [*start_anew, *(getattr(bound, name) for name in names)])
    *last, features = scan_op(body, *([tensor.detach() for tensor in tensors] for tensors in given))
    outputs = bound.readout(features.flip(0) if reverse else features)  # (T, B, p)
    return (outputs if ended is None else outputs.masked_fill(ended, 0)), tuple(last)


def pad_packed(packed: PackedSequence) -> tuple[Tensor, Tensor]:
    """Return what `pad_packed_sequence` returns, which reads values and so cannot be exported."""
    from torch._decomp import decomposition_table  # slow to import and rarely needed

    decomposition_table[torch.ops.aten._pack_padded_sequence.default] = _pack  # the exporter knows no other
    sizes = packed.batch_sizes  # (T,), the number of sequences that have each step
    torch._check(sizes.shape[0] >= 1)  # type: ignore[no-untyped-call]
    batch: Any = sizes[0].item() if packed.sorted_indices is None else packed.sorted_indices.shape[0]
    valid = torch.arange(batch, device=sizes.device) < sizes.unsqueeze(1)  # (T, B)
    padded = packed.data.new_zeros(sizes.shape[0], batch, *packed.data.shape[1:])
    padded = padded.masked_scatter(valid.unsqueeze(2).to(padded.device), packed.data)  # (T, B, m)
    lengths = valid.sum(0)
    if packed.unsorted_indices is not None:
        padded, lengths = padded[:, packed.unsorted_indices], lengths[packed.unsorted_indices.cpu()]
    return padded, lengths


def _pack(padded: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """`aten::_pack_padded_sequence` in operators that ONNX has. Return data and batch sizes."""
    padded = padded.transpose(0, 1) if batch_first else padded  # (T, B, m)
    valid = torch.arange(padded.shape[0], device=lengths.device).unsqueeze(1) < lengths  # (T, B)
    sizes = valid.sum(1)
    return padded[valid.to(padded.device)], sizes[sizes > 0]
