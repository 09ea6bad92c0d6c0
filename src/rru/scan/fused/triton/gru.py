"""Triton kernels of one step of the GRU. `reset_before` and its gradient include the candidate's product."""

# Triton reads these functions' source and has its own rules for types, so they have none of Python's.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, no-any-return"
import triton
import triton.language as tl

from rru.scan.fused.triton.kernels import CHANGING, drop, is_running, keep_factors, load, tanh


@triton.jit(do_not_specialize=CHANGING)
def reset_after(
    h, after, output, gates, inner, sums, product, bias,
    lengths, seed, step, threshold, factor,
    n, BLOCK: tl.constexpr,
):  # fmt: skip
    row, first = tl.program_id(0), tl.program_id(1) * BLOCK
    columns = first + tl.arange(0, BLOCK)
    inside, at, at3 = columns < n, row.to(tl.int64) * n + columns, row.to(tl.int64) * 3 * n + columns
    r = tl.sigmoid(load(sums, at3, inside) + load(product, at3, inside))
    u = tl.sigmoid(load(sums + n, at3, inside) + load(product + n, at3, inside))
    from_h = load(product + 2 * n, at3, inside) + load(bias, columns, inside)
    j = tanh(load(sums + 2 * n, at3, inside) + r * from_h)
    old, running = load(h, at, inside), is_running(lengths, row, step)
    new = u * old + (1 - u) * drop(j, seed, row, first, step, threshold, factor, BLOCK)
    tl.store(gates + at3, r, inside)
    tl.store(gates + n + at3, u, inside)
    tl.store(gates + 2 * n + at3, j, inside)
    tl.store(inner + at, from_h, inside)
    tl.store(output + at, tl.where(running, new, 0.0), inside)
    tl.store(h + at, tl.where(running, new, old), inside)
    tl.store(after + at, tl.where(running, new, old), inside)


@triton.jit(do_not_specialize=CHANGING)
def reset_after_backward(
    grad_h, grad_sums, product, grad_output, gates, before, inner,
    lengths, seed, step, threshold, factor,
    n, BLOCK: tl.constexpr,
):  # fmt: skip
    row, first = tl.program_id(0), tl.program_id(1) * BLOCK
    columns = first + tl.arange(0, BLOCK)
    inside, at = columns < n, row.to(tl.int64) * n + columns
    at3, at4 = row.to(tl.int64) * 3 * n + columns, row.to(tl.int64) * 4 * n + columns
    r, u, j = load(gates, at3, inside), load(gates + n, at3, inside), load(gates + 2 * n, at3, inside)
    keep = drop(tl.full([BLOCK], 1.0, tl.float32), seed, row, first, step, threshold, factor, BLOCK)
    running = is_running(lengths, row, step)
    through = load(grad_h, at, inside) + load(product, at, inside)
    dh = through + load(grad_output, at, inside)
    dj = dh * (1 - u) * keep * (1 - j * j)
    du = dh * (load(before, at, inside) - j * keep) * u * (1 - u)
    dr = dj * load(inner, at, inside) * r * (1 - r)
    tl.store(grad_sums + at4, tl.where(running, dr, 0.0), inside)
    tl.store(grad_sums + n + at4, tl.where(running, du, 0.0), inside)
    tl.store(grad_sums + 2 * n + at4, tl.where(running, dj * r, 0.0), inside)
    tl.store(grad_sums + 3 * n + at4, tl.where(running, dj, 0.0), inside)
    tl.store(grad_h + at, tl.where(running, dh * u, through), inside)


@triton.jit
def drop_tile(values, seed, rows, first, step, threshold, factor, COLUMNS: tl.constexpr):
    """Return values[rows, first : first + COLUMNS] after dropout."""
    if seed is not None:
        blocks = first // 4 + tl.arange(0, COLUMNS // 4)
        values *= keep_factors(seed, rows[:, None], blocks[None, :], step, threshold, factor)
    return values


@triton.jit
def are_running(lengths, rows, inside, step):
    """Return which sequences have not ended before this step."""
    running = inside
    if lengths is not None:
        running = step < tl.load(lengths + rows, inside, other=0)
    return running


@triton.jit(do_not_specialize=CHANGING)
def reset_before(
    h, after, output, gates, inner, sums, product, before, weight,
    lengths, seed, step, threshold, factor,
    batch, n, PRECISION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    rows, first = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS
    columns, is_row = first + tl.arange(0, COLUMNS), rows < batch
    row = rows.to(tl.int64)[:, None]
    candidate = tl.zeros([ROWS, COLUMNS], tl.float32)  # W (r h)
    for start in range(0, n, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        present = is_row[:, None] & (depth < n)[None, :]
        r = load(sums, row * 3 * n + depth[None, :], present) + load(product, row * 2 * n + depth[None, :], present)
        reset = tl.sigmoid(r) * load(before, row * n + depth[None, :], present)
        matrix = tl.load(
            weight + columns[None, :] * n + depth[:, None], (columns < n)[None, :] & (depth < n)[:, None], other=0.0
        )
        candidate = tl.dot(reset.to(matrix.dtype), matrix, candidate, input_precision=PRECISION)
    inside = is_row[:, None] & (columns < n)[None, :]
    at, at2, at3 = row * n + columns[None, :], row * 2 * n + columns[None, :], row * 3 * n + columns[None, :]
    r = tl.sigmoid(load(sums, at3, inside) + load(product, at2, inside))
    u = tl.sigmoid(load(sums + n, at3, inside) + load(product + n, at2, inside))
    j = tanh(load(sums + 2 * n, at3, inside) + candidate)
    old, running = load(h, at, inside), are_running(lengths, rows, is_row, step)[:, None]
    new = u * old + (1 - u) * drop_tile(j, seed, rows, first, step, threshold, factor, COLUMNS)
    tl.store(gates + at3, r, inside)
    tl.store(gates + n + at3, u, inside)
    tl.store(gates + 2 * n + at3, j, inside)
    tl.store(inner + at, r * load(before, at, inside), inside)
    tl.store(output + at, tl.where(running, new, 0.0), inside)
    tl.store(h + at, tl.where(running, new, old), inside)
    tl.store(after + at, tl.where(running, new, old), inside)


@triton.jit(do_not_specialize=CHANGING)
def reset_before_backward(
    grad_h, grad_sums, product, grad_output, gates, before, old_grad_h, weight,
    lengths, seed, step, threshold, factor,
    batch, n, PRECISION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    rows, first = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * COLUMNS
    columns, is_row = first + tl.arange(0, COLUMNS), rows < batch
    row, running = rows.to(tl.int64)[:, None], are_running(lengths, rows, is_row, step)[:, None]
    back = tl.zeros([ROWS, COLUMNS], tl.float32)  # the gradient of r h
    for start in range(0, n, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        present, at = is_row[:, None] & (depth < n)[None, :], row * n + depth[None, :]
        at3 = row * 3 * n + depth[None, :]
        dh = load(old_grad_h, at, present) + load(product, at, present) + load(grad_output, at, present)
        u, j = load(gates + n, at3, present), load(gates + 2 * n, at3, present)
        dj = drop_tile(dh * (1 - u), seed, rows, start, step, threshold, factor, DEPTH) * (1 - j * j)
        matrix = tl.load(
            weight + depth[:, None] * n + columns[None, :], (depth < n)[:, None] & (columns < n)[None, :], other=0.0
        )
        back = tl.dot(tl.where(running, dj, 0.0).to(matrix.dtype), matrix, back, input_precision=PRECISION)
    inside = is_row[:, None] & (columns < n)[None, :]
    at, at3 = row * n + columns[None, :], row * 3 * n + columns[None, :]
    r, u, j = load(gates, at3, inside), load(gates + n, at3, inside), load(gates + 2 * n, at3, inside)
    old = load(before, at, inside)
    through = load(old_grad_h, at, inside) + load(product, at, inside)
    dh = through + load(grad_output, at, inside)
    keep = drop_tile(tl.full([ROWS, COLUMNS], 1.0, tl.float32), seed, rows, first, step, threshold, factor, COLUMNS)
    dj, du = dh * (1 - u) * keep * (1 - j * j), dh * (old - j * keep) * u * (1 - u)
    tl.store(grad_sums + at3, tl.where(running, back * old * r * (1 - r), 0.0), inside)
    tl.store(grad_sums + n + at3, tl.where(running, du, 0.0), inside)
    tl.store(grad_sums + 2 * n + at3, tl.where(running, dj, 0.0), inside)
    tl.store(grad_h + at, tl.where(running, dh * u + back * r, through), inside)
