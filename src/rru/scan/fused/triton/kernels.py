"""Triton kernels of one step, for RRU, LSTM and Mogrifier; those of the GRU are in gru.py.

All compute in float32, whatever the rows hold. A mask is (lengths, seed, step, threshold, factor), as in pointwise.py.
NaN stays NaN: ReLU is written `where(j < 0, 0, j)`, and dropout multiplies.
"""

# Triton reads these functions' source and has its own rules for types, so they have none of Python's.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, no-any-return"
import triton
import triton.language as tl

CHANGING = ["step", "threshold", "factor"]  # values that differ between calls: not to be compiled in


@triton.jit
def keep_factors(seed, rows, blocks, step, threshold, factor):
    """Return 0 or `factor` for four features per block: Philox of (block, row, step, 0), as in scan/dropout.py."""
    zero = rows * 0 + blocks * 0
    w0, w1, w2, w3 = tl.philox(tl.load(seed), zero + blocks, zero + rows, zero + step, zero)
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    return tl.where(words.to(tl.int64) >= threshold, factor, 0.0)


@triton.jit
def drop(values, seed, row, first, step, threshold, factor, BLOCK: tl.constexpr):
    """Return values[first : first + BLOCK] of a row after dropout."""
    if seed is not None:
        blocks = first // 4 + tl.arange(0, BLOCK // 4)
        values *= keep_factors(seed, row, blocks, step, threshold, factor)
    return values


@triton.jit
def is_running(lengths, row, step):
    """Return whether a sequence has not ended before this step."""
    running = step >= 0
    if lengths is not None:
        running = step < tl.load(lengths + row)
    return running


@triton.jit
def load(row, columns, inside):
    """Return entries of a row as float32."""
    return tl.load(row + columns, inside, other=0.0).to(tl.float32)


@triton.jit
def tanh(x):
    """Return tanh, with an absolute error of about 1e-7."""
    e = tl.exp(-2 * tl.abs(x))
    size = (1 - e) / (1 + e)
    return tl.where(x < 0, -size, size)


@triton.jit(do_not_specialize=CHANGING)
def normalized(
    d, pre, scale, sums, product,
    lengths, seed, step, threshold, factor,
    g, NORMALIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside, at = columns < g, row.to(tl.int64) * g + columns
    j = load(sums, at, inside) + load(product, at, inside)
    j = tl.where(is_running(lengths, row, step), j, 0.0)
    if pre is not None:
        tl.store(pre + at, j, inside)
    if NORMALIZE:
        multiplier = 1 / tl.sqrt(tl.sum(j * j) / g + 1e-6)
        tl.store(scale + row, multiplier)
        j *= multiplier
    tl.store(d + at, drop(tl.where(j < 0, 0.0, j), seed, row, 0, step, threshold, factor, BLOCK), inside)


@triton.jit(do_not_specialize=CHANGING)
def normalized_backward(
    grad_sums, d, grad_d, product, pre, scale,
    lengths, seed, step, threshold, factor,
    g, NORMALIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside, at = columns < g, row.to(tl.int64) * g + columns
    y, grad = load(pre, at, inside), load(product, at, inside)
    if NORMALIZE:
        multiplier = tl.load(scale + row)
        y *= multiplier
    if grad_d is not None:
        grad += load(grad_d, at, inside)
    keep = drop(tl.full([BLOCK], 1.0, tl.float32), seed, row, 0, step, threshold, factor, BLOCK)
    if d is not None:
        tl.store(d + at, tl.where(y < 0, 0.0, y) * keep, inside)
    grad = tl.where(y <= 0, 0.0, grad) * keep
    if NORMALIZE:
        grad = (grad - y * (tl.sum(grad * y) / g)) * multiplier
    tl.store(grad_sums + at, tl.where(is_running(lengths, row, step), grad, 0.0), inside)


@triton.jit(do_not_specialize=CHANGING)
def rectified(d, hidden, product, bias, lengths, seed, step, threshold, factor, g, BLOCK: tl.constexpr):
    row, first = tl.program_id(0), tl.program_id(1) * BLOCK
    columns = first + tl.arange(0, BLOCK)
    inside, at = columns < g, row.to(tl.int64) * g + columns
    j = load(product, at, inside) + load(bias, columns, inside)
    j = tl.where(is_running(lengths, row, step), j, 0.0)
    j = tl.where(j < 0, 0.0, j)
    if hidden is not None:
        tl.store(hidden + at, j, inside)
    tl.store(d + at, drop(j, seed, row, first, step, threshold, factor, BLOCK), inside)


@triton.jit(do_not_specialize=CHANGING)
def rectified_backward(
    grad_sums, d, grad_d, product, hidden, lengths, seed, step, threshold, factor, g, BLOCK: tl.constexpr
):
    row, first = tl.program_id(0), tl.program_id(1) * BLOCK
    columns = first + tl.arange(0, BLOCK)
    inside, at = columns < g, row.to(tl.int64) * g + columns
    j, grad = load(hidden, at, inside), load(product, at, inside)
    if grad_d is not None:
        grad += load(grad_d, at, inside)
    keep = drop(tl.full([BLOCK], 1.0, tl.float32), seed, row, first, step, threshold, factor, BLOCK)
    if d is not None:
        tl.store(d + at, j * keep, inside)
    grad = tl.where(j <= 0, 0.0, grad) * keep
    tl.store(grad_sums + at, tl.where(is_running(lengths, row, step), grad, 0.0), inside)


@triton.jit(do_not_specialize=["step"])
def updated(h, after, c, product, bias, decay, z, lengths, step, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, at = columns < n, row.to(tl.int64) * n + columns
    new, old = load(product, at, inside) + load(bias, columns, inside), load(h, at, inside)
    if c is not None:
        new = tl.where(new < 0, 0.0, new)
        tl.store(c + at, new, inside)
    new = load(decay, columns, inside) * old + load(z, columns, inside) * new
    new = tl.where(is_running(lengths, row, step), new, old)
    tl.store(h + at, new, inside)
    tl.store(after + at, new, inside)


@triton.jit(do_not_specialize=["step"])
def updated_backward(grad_h, grad_new, grad_c, product, c, decay, lengths, step, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, at = columns < n, row.to(tl.int64) * n + columns
    running = is_running(lengths, row, step)
    grad = load(grad_h, at, inside) + load(product, at, inside)
    live = tl.where(running, grad, 0.0)
    tl.store(grad_new + at, live, inside)
    if c is not None:
        tl.store(grad_c + at, tl.where(load(c, at, inside) <= 0, 0.0, live), inside)
    tl.store(grad_h + at, tl.where(running, load(decay, columns, inside) * grad, grad), inside)


@triton.jit(do_not_specialize=CHANGING)
def gated(
    h, c, after, output, gates, before_c, sums, product,
    lengths, seed, step, threshold, factor,
    sums_stride, n, CAPPED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, first = tl.program_id(0), tl.program_id(1) * BLOCK
    columns = first + tl.arange(0, BLOCK)
    inside, at, at4 = columns < n, row.to(tl.int64) * n + columns, row.to(tl.int64) * 4 * n + columns
    sums += row.to(tl.int64) * sums_stride
    i = tl.sigmoid(load(sums, columns, inside) + load(product, at4, inside))
    f = tl.sigmoid(load(sums + n, columns, inside) + load(product + n, at4, inside))
    j = tanh(load(sums + 2 * n, columns, inside) + load(product + 2 * n, at4, inside))
    o = tl.sigmoid(load(sums + 3 * n, columns, inside) + load(product + 3 * n, at4, inside))
    tl.store(gates + at4, i, inside)
    tl.store(gates + n + at4, f, inside)
    tl.store(gates + 2 * n + at4, j, inside)
    tl.store(gates + 3 * n + at4, o, inside)
    old_c, old_h = load(c, at, inside), load(h, at, inside)
    if before_c is not None:
        tl.store(before_c + at, old_c, inside)
    share = tl.where(i > 1 - f, 1 - f, i) if CAPPED else i
    new_c = f * old_c + share * drop(j, seed, row, first, step, threshold, factor, BLOCK)
    new_h = tanh(new_c) * o
    running = is_running(lengths, row, step)
    tl.store(output + at, tl.where(running, new_h, 0.0), inside)
    tl.store(c + at, tl.where(running, new_c, old_c), inside)
    tl.store(h + at, tl.where(running, new_h, old_h), inside)
    tl.store(after + at, tl.where(running, new_h, old_h), inside)


@triton.jit(do_not_specialize=CHANGING)
def gated_backward(
    grad_h, grad_c, grad_sums, product, grad_output, gates, before_c,
    lengths, seed, step, threshold, factor,
    n, CAPPED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, first = tl.program_id(0), tl.program_id(1) * BLOCK
    columns = first + tl.arange(0, BLOCK)
    inside, at, at4 = columns < n, row.to(tl.int64) * n + columns, row.to(tl.int64) * 4 * n + columns
    i, f = load(gates, at4, inside), load(gates + n, at4, inside)
    j, o = load(gates + 2 * n, at4, inside), load(gates + 3 * n, at4, inside)
    keep = drop(tl.full([BLOCK], 1.0, tl.float32), seed, row, first, step, threshold, factor, BLOCK)
    running, old_c, old_grad_c = is_running(lengths, row, step), load(before_c, at, inside), load(grad_c, at, inside)
    share = tl.where(i > 1 - f, 1 - f, i) if CAPPED else i
    squashed = tanh(f * old_c + share * j * keep)
    through = load(grad_h, at, inside) + load(product, at, inside)
    dh = through + load(grad_output, at, inside)
    dc = old_grad_c + dh * o * (1 - squashed * squashed)
    to_i, to_f = dc * j * keep, dc * old_c
    if CAPPED:  # the gradient goes to the smaller one, half to each if they are equal, as in torch.minimum
        from_i = tl.where(i == 1 - f, 0.5, tl.where(i < 1 - f, 1.0, 0.0))
        to_f -= to_i * (1 - from_i)
        to_i *= from_i
    tl.store(grad_sums + at4, tl.where(running, to_i * i * (1 - i), 0.0), inside)
    tl.store(grad_sums + n + at4, tl.where(running, to_f * f * (1 - f), 0.0), inside)
    tl.store(grad_sums + 2 * n + at4, tl.where(running, dc * share * keep * (1 - j * j), 0.0), inside)
    tl.store(grad_sums + 3 * n + at4, tl.where(running, dh * squashed * o * (1 - o), 0.0), inside)
    tl.store(grad_h + at, tl.where(running, 0.0, through), inside)
    tl.store(grad_c + at, tl.where(running, dc * f, old_grad_c), inside)


@triton.jit
def mogrified(value, factor, product, bias, before, size, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, at = columns < size, row.to(tl.int64) * size + columns
    gate = 2 * tl.sigmoid(load(product, at, inside) + load(bias, columns, inside))
    tl.store(factor + at, gate, inside)
    tl.store(value + at, load(before, at, inside) * gate, inside)


@triton.jit
def mogrified_backward(grad_sum, grad, before, factor, size, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, at = columns < size, row.to(tl.int64) * size + columns
    after, gate = load(grad, at, inside), load(factor, at, inside)
    tl.store(grad_sum + at, after * load(before, at, inside) * gate * (1 - gate / 2), inside)
    tl.store(grad + at, after * gate, inside)
