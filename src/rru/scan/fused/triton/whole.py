"""The whole time loop of a small RRU in one Triton kernel: one launch a sequence instead of four a step.

A program runs all steps of a few sequences. It keeps their states in registers, and reads the weights a few units at a
time, in every step again: from the second step on they come from the cache. Normalize multiplies a row by a positive
number, so it commutes with ReLU, dropout and Eq. 4: it is applied to c, when the sum over the row is complete, and to d
after the loop. Its gradient is computed likewise.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, no-any-return"
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rru.scan.fused.rru import Gradients, Rows, Weights
from rru.scan.fused.scan import FusedScan
from rru.scan.fused.triton import pointwise
from rru.scan.fused.triton.gru import are_running, drop_tile
from rru.scan.fused.triton.kernels import load
from rru.scan.thresholds import MAX_WHOLE_STATE, MAX_WHOLE_UNITS

ROWS, UNITS = 16, 16  # sequences per program (the least that tensor cores multiply), units at a time


def fits(scan: FusedScan) -> bool:
    """Return whether the whole loop can run in one kernel."""
    options, n = scan.spec.options, scan.sizes[3]
    simple = options.relu_layers == 1 and not options.activate_outputs
    return simple and n <= MAX_WHOLE_STATE and options.expanded_size <= MAX_WHOLE_UNITS


def _launch(kernel: Any, scan: FusedScan, *tensors: Tensor | None) -> None:
    (steps, batch, _, n), options = scan.sizes, scan.spec.options
    dropout = scan.lengths, scan.seed, *pointwise.dropout_numbers(scan)
    constants = {
        "REVERSE": scan.spec.reverse,
        "NORMALIZE": bool(options.normalize),
        "PRECISION": pointwise.precision(),
        "ROWS": ROWS,
        "UNITS": UNITS,
        "N": max(16, triton.next_power_of_2(n)),
        "num_warps": 8,  # with fewer, or with loads ahead of their use (num_stages), registers do not suffice
        "num_stages": 1,
    }
    grid = (triton.cdiv(batch, ROWS),)
    pointwise.launch(kernel, grid, *tensors, *dropout, steps, batch, n, options.expanded_size, **constants)


def forward(scan: FusedScan, rows: Rows, w: Weights) -> None:
    """Run all steps: what `run_steps` does."""
    tensors = rows.h, rows.history, rows.pre, rows.scale, rows.d, rows.sums, w.h, w.c, w.bias_c, w.decay, w.z
    _launch(forward_loop, scan, *tensors)
    if scan.spec.options.normalize:
        rows.d.mul_(rows.scale.unsqueeze(-1))


def backward(scan: FusedScan, saved: list[Tensor], grads: Gradients, d: Tensor, w: Weights) -> None:
    """Run all steps backward: what `run_steps_backward` does."""
    _, pre, scale = saved
    (grad_d,), mean = grads.sums, torch.empty_like(scale)  # the mean of each row of y times its gradient
    tensors = grads.h, grads.new, d, grad_d, mean, pre, scale, w.to_d(scan), w.h, w.decay
    _launch(backward_loop, scan, *tensors)
    if scan.spec.options.normalize:
        torch.addcmul(grad_d, pre, (scale * mean).unsqueeze(-1), value=-1, out=grad_d)
        grad_d.mul_(scale.unsqueeze(-1))


@triton.jit
def load_matrix(matrix, rows, columns, row_count, column_count, row_stride, column_stride):
    """Return matrix[rows, columns], with zeros outside."""
    inside = (rows < row_count)[:, None] & (columns < column_count)[None, :]
    return tl.load(matrix + rows[:, None] * row_stride + columns[None, :] * column_stride, inside, other=0.0)


@triton.jit(do_not_specialize=["threshold", "factor", "steps"])
def forward_loop(
    h, history, pre, scale, d, sums, weight_h, weight_c, bias_c, decay, z,
    lengths, seed, threshold, factor,
    steps, batch, n, g, REVERSE: tl.constexpr, NORMALIZE: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    rows, features = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, N)
    is_row = rows < batch
    inside, at = is_row[:, None] & (features < n)[None, :], rows[:, None] * n + features[None, :]
    state, bias = load(h, at, inside), load(bias_c, features, features < n)[None, :]
    share, z_row = load(decay, features, features < n)[None, :], load(z, features, features < n)[None, :]
    for i in range(steps):
        t = steps - 1 - i if REVERSE else i
        row = (t * batch + rows).to(tl.int64)
        running = are_running(lengths, rows, is_row, t)[:, None]
        if history is not None:
            tl.store(history + row[:, None] * n + features[None, :], state, inside)
        c, squares = tl.zeros([ROWS, N], tl.float32), tl.zeros([ROWS], tl.float32)
        for first in range(0, g, UNITS):
            units = first + tl.arange(0, UNITS)
            there, here = is_row[:, None] & (units < g)[None, :], row[:, None] * g + units[None, :]
            matrix = load_matrix(weight_h, features, units, n, g, 1, n)  # (N, UNITS)
            j = tl.dot(state.to(matrix.dtype), matrix, load(sums, here, there), input_precision=PRECISION)
            j = tl.where(running, j, 0.0)
            squares += tl.sum(j * j, 1)
            if pre is not None:
                tl.store(pre + here, j, there)
            j = drop_tile(tl.where(j < 0, 0.0, j), seed, rows, first, t, threshold, factor, UNITS)
            tl.store(d + here, j, there)
            matrix = load_matrix(weight_c, units, features, g, n, 1, g)  # (UNITS, N)
            c = tl.dot(j.to(matrix.dtype), matrix, c, input_precision=PRECISION)
        if NORMALIZE:
            multiplier = 1 / tl.sqrt(squares / g + 1e-6)
            tl.store(scale + row, multiplier, is_row)
            c *= multiplier[:, None]
        state = tl.where(running, share * state + z_row * (c + bias), state)
    tl.store(h + at, state, inside)


@triton.jit(do_not_specialize=["threshold", "factor", "steps"])
def backward_loop(
    grad_h, grad_new, d, grad_d, mean, pre, scale, to_d, weight_h, decay,
    lengths, seed, threshold, factor,
    steps, batch, n, g, REVERSE: tl.constexpr, NORMALIZE: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    rows, features = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, N)
    is_row = rows < batch
    inside, at = is_row[:, None] & (features < n)[None, :], rows[:, None] * n + features[None, :]
    grad, share = load(grad_h, at, inside), load(decay, features, features < n)[None, :]
    for i in range(steps):
        t = i if REVERSE else steps - 1 - i
        row = (t * batch + rows).to(tl.int64)
        running = are_running(lengths, rows, is_row, t)[:, None]
        live = tl.where(running, grad, 0.0)
        tl.store(grad_new + row[:, None] * n + features[None, :], live, inside)
        multiplier = tl.load(scale + row, is_row, other=1.0)[:, None] if NORMALIZE else 1.0
        # The gradient of the sum j in Eq. 1 is s (q - y mean(q y)): s is the scale, y = s j, and q the gradient of
        # y. The mean is known only after the loop over units, so q and y are multiplied by W^h separately.
        from_q, from_y = tl.zeros([ROWS, N], tl.float32), tl.zeros([ROWS, N], tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        for first in range(0, g, UNITS):
            units = first + tl.arange(0, UNITS)
            there, here = is_row[:, None] & (units < g)[None, :], row[:, None] * g + units[None, :]
            y = load(pre, here, there) * multiplier
            matrix = load_matrix(to_d, features, units, n, g, g, 1)  # (N, UNITS)
            q = tl.dot(live.to(matrix.dtype), matrix, load(grad_d, here, there), input_precision=PRECISION)
            keep = drop_tile(tl.full([ROWS, UNITS], 1.0, tl.float32), seed, rows, first, t, threshold, factor, UNITS)
            tl.store(d + here, tl.where(y < 0, 0.0, y) * keep, there)
            q = tl.where(running & ~(y <= 0), q * keep, 0.0)
            tl.store(grad_d + here, q, there)
            matrix = load_matrix(weight_h, units, features, g, n, n, 1)  # (UNITS, N)
            from_q = tl.dot(q.to(matrix.dtype), matrix, from_q, input_precision=PRECISION)
            if NORMALIZE:
                total += tl.sum(q * y, 1)
                from_y = tl.dot(y.to(matrix.dtype), matrix, from_y, input_precision=PRECISION)
        if NORMALIZE:
            total /= g
            tl.store(mean + row, total, is_row)
            from_q = (from_q - from_y * total[:, None]) * multiplier
        grad = tl.where(running, share * grad + from_q, grad)
    tl.store(grad_h + at, grad, inside)
