"""The native scan of the RRU: the arguments of its C++ loops (native/rru.h), and its weight gradients."""

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from rru.scan import thresholds
from rru.scan.arguments import ScanArguments
from rru.scan.native import library
from rru.scan.native.library import double_bits
from rru.scan.native.spec import BackwardPass, NativeCell, Shapes, TensorSpec, is_small
from rru.scan.native.weight_gradients import by_input_and_state, over_steps

if TYPE_CHECKING:
    from rru.scan.kernels import RRUOptions


class NativeRRU(NativeCell):
    """The RRU. `wide` describes its other form, and `narrow` its other backward loop."""

    name = "rru"
    step_numbers: ClassVar[dict[str, int]] = {  # a step has too few rows to skip zeros
        "sparse": 0,
        "stores_d": 1,
        "wants_biases": 0,
        "wants_x": 0,
    }

    def __init__(self, wide: NativeCell | None = None, narrow: NativeCell | None = None) -> None:
        self.wide, self.narrow = wide, narrow

    def best_form(self, arguments: ScanArguments) -> NativeCell:
        return self.wide if self.wide is not None and is_wide(arguments) else self

    def backward_form(self, arguments: ScanArguments) -> NativeCell:
        form = self.best_form(arguments)
        return self.narrow if form is self and self.narrow is not None and is_narrow(arguments) else form

    def numbers(self, n: int, options: "RRUOptions") -> dict[str, int]:
        return options._asdict()

    def thresholds(self) -> dict[str, int]:
        return {
            "max_sparse_row": double_bits(thresholds.MAX_SPARSE_ROW),
            "max_sparse_result": double_bits(thresholds.MAX_SPARSE_RESULT),
            "select_above": double_bits(thresholds.SELECT_ABOVE),
        }

    def saved(self, arguments: ScanArguments) -> Shapes:
        (steps, batch, m, n), options = arguments.sizes, arguments.spec.options
        g = options.expanded_size
        always: Shapes = [(steps, batch, m + n), (steps, batch), (steps, batch, g), (1,)]
        middle = [(options.relu_layers - 1, steps, batch, g)] if options.relu_layers > 1 else []
        activated = [(steps, batch, n + options.output_size)] if options.activate_outputs else []
        return always + middle + activated

    def backward_numbers(self, arguments: ScanArguments, saved: list[Tensor], wants_x: bool) -> dict[str, int]:
        density = saved[3]  # the share of nonzeros in d
        width = arguments.sizes[3] + arguments.spec.options.output_size
        is_sparse = width >= thresholds.MIN_SPARSE_GRADIENT_WIDTH and density.item() < thresholds.MAX_SPARSE_GRADIENT
        finishes = is_sparse or not is_small(arguments)  # else `small_gradients` computes the gradients of x and biases
        return {
            "sparse": int(is_sparse),
            "stores_d": int(not is_sparse and (arguments.seed is not None or not finishes)),
            "wants_biases": int(finishes),
            "wants_x": int(finishes and wants_x),
        }

    def backward_buffers(self, arguments: ScanArguments, numbers: dict[str, int]) -> Shapes:
        (steps, batch, m, n), options = arguments.sizes, arguments.spec.options
        p, g, middle_layers = options.output_size, options.expanded_size, options.relu_layers - 1
        shapes: Shapes = [(steps, batch, n + p), (n,), (steps, batch, g)]
        if middle_layers:
            shapes.append((middle_layers, steps, batch, g))
        if numbers["sparse"]:
            shapes += [(n, g), (p, g), *([(g, g)] if middle_layers else [])]
        if numbers["stores_d"]:
            shapes.append((steps, batch, g))
        if numbers["wants_biases"]:
            shapes.append((1 + middle_layers, g))
        if numbers["wants_x"]:
            shapes.append(TensorSpec((steps, batch, m), returned=True))
        return shapes

    def input_gradient(self, done: BackwardPass) -> Tensor:
        return done.buffers[-1] if done.numbers["wants_x"] else done.buffers[2] @ done.arguments.weights[0]

    def gradients(self, done: BackwardPass) -> list[Tensor]:
        spec, numbers, (_, _, m, n) = done.arguments.spec, done.numbers, done.arguments.sizes
        middle_layers = spec.options.relu_layers - 1
        xh, _, pre, _, *hidden = done.saved
        before = [pre, *(hidden[0] if middle_layers else [])]  # d and all before it, but for a ReLU and dropout
        grad_both, _, grad_inner, *rest = done.buffers
        grad_sums = [grad_inner, *(rest.pop(0) if middle_layers else [])]  # of Eq. 1 and 2
        if numbers["sparse"]:
            grad_c, grad_o, *rest = rest
        else:
            features = rest.pop(0) if numbers["stores_d"] else before[-1]
            both = over_steps(grad_both, features, spec.bfloat16, relu=True)
            grad_c, grad_o = both[:n], both[n:]
        done_in_loop = [rest.pop(0)] if numbers["sparse"] and middle_layers else []  # the last of Eq. 2's
        others = list(zip(grad_sums[1:], before, strict=False))[: middle_layers - len(done_in_loop)]
        middle = [*(over_steps(*rows, spec.bfloat16, relu=True) for rows in others), *done_in_loop]
        biases = rest[0] if numbers["wants_biases"] else [grad.sum((0, 1)) for grad in grad_sums]
        inner = [*by_input_and_state(grad_inner, xh, m, spec.bfloat16), biases[0]]
        between = [tensor for pair in zip(middle, biases[1:], strict=True) for tensor in pair]
        bias, grad_kept = grad_both.sum((0, 1)), done.buffers[1]
        return [*inner, *between, *outer_gradients(done.arguments, grad_c, grad_o, bias, grad_kept)]

    def small_gradients(self, done: BackwardPass) -> tuple[dict[str, int], list[Tensor]] | None:
        weights, options = done.arguments.weights, done.arguments.spec.options
        xh, _, pre, _, *hidden = done.saved
        middle_layers = options.relu_layers - 1
        if done.numbers["sparse"]:  # the loop has computed some of them already, skipping zeros
            return None
        names = ("expanded_size", "relu_layers", "scaled_residual", "vector_rezero")
        outer = weights[3 + 2 * middle_layers :]
        residual = outer[4:]  # S, unless unscaled, and Z
        tensors = [weights[0], *outer[:2], *residual, xh, pre, *(hidden[:1] if middle_layers else []), *done.buffers]
        return {name: getattr(options, name) for name in names}, tensors


def outer_gradients(
    arguments: ScanArguments, grad_c: Tensor, grad_o: Tensor, bias: Tensor, grad_kept: Tensor
) -> list[Tensor]:
    """Return the gradients of W^c, b^c, W^o, b^o, S and Z.

    **Arguments:** `grad_c` (n, g), `grad_o` (p, g): those of W^c and W^o; `bias` (n + p,): those of b^c and b^o side
    by side. Those of W^c and b^c still lack the factor Z. `grad_kept` (n,): that of sigmoid(10 S).
    """
    weights, options, n = arguments.weights, arguments.spec.options, len(grad_c)
    (weight_c, bias_c), z = weights[1 + 2 * options.relu_layers :][:2], weights[-1]
    # The gradient of Z sums c times its gradient. c is not saved, so this goes through the gradient of W^c.
    grad_z = (weight_c.unsqueeze(1) @ grad_c.unsqueeze(2)).flatten() + bias_c * bias[:n]
    share = torch.sigmoid(10 * weights[-2]) if options.scaled_residual else None
    return [
        grad_c.mul_(z.unsqueeze(1)),
        z * bias[:n],
        grad_o,
        bias[n:],
        *([] if share is None else [10 * share * (1 - share) * grad_kept]),
        grad_z if options.vector_rezero else grad_z.sum(0, keepdim=True),
    ]


def is_wide(arguments: ScanArguments) -> bool:
    """Return whether to run the wide form of an RRU (native/rru_wide.py).

    Two products of Eq. 1's size become sparse, or three above `SELECT_ABOVE`, but four smaller ones come on top.
    Relative to Eq. 1's product over all tokens, y and G take about (m + n) / g, and M and W G about (m + n) / (T B).
    The sum of both decides.
    """
    options, dropout = arguments.spec.options, arguments.spec.dropout
    bfloat16 = arguments.spec.bfloat16
    least = thresholds.MIN_WIDE_DROPOUT_BFLOAT16 if bfloat16 else thresholds.MIN_WIDE_DROPOUT
    if arguments.seed is None or dropout < least:
        return False
    (steps, batch, m, n), g = arguments.sizes, options.expanded_size
    tokens, width = steps * batch, n + options.output_size
    if options.relu_layers > 1 or not options.normalize:
        return False
    if bfloat16 and library.bfloat16_instructions() == library.AMX:  # faster than skipping zeros in float32
        return False
    if width < thresholds.MIN_WIDE_WIDTH or tokens < thresholds.MIN_PACKED_TOKENS:
        return False
    is_selected = dropout > thresholds.SELECT_ABOVE
    most = thresholds.MAX_WIDE_EXTRA_SELECTED if is_selected else thresholds.MAX_WIDE_EXTRA
    most = thresholds.MAX_WIDE_EXTRA_BFLOAT16 if bfloat16 else most
    return bool((m + n) * (g + tokens) < most * g * tokens)


def is_narrow(arguments: ScanArguments) -> bool:
    """Return whether to run the narrow form of an RRU (native/rru_narrow.h).

    Its weights must stay in the cache, and weight gradients around d be faster if they do not skip zeros. A small scan
    is left to `small_gradients`. In bfloat16 the loop adds up gradients by AVX512_BF16; AMX is faster after the loop.
    """
    options, (steps, batch, m, n) = arguments.spec.options, arguments.sizes
    if options.relu_layers > 1 or options.activate_outputs:
        return False
    if arguments.spec.bfloat16 and library.bfloat16_instructions() != library.AVX512_BF16:
        return False
    width, tokens = n + options.output_size, steps * batch
    weights = options.expanded_size * (m + n + width)
    is_cached = weights * arguments.x.element_size() <= thresholds.MAX_CACHED_WEIGHTS
    is_large = tokens * weights >= thresholds.MIN_PARALLEL_WORK and batch >= thresholds.MIN_TEAM_ROWS
    return is_large and is_cached and width < thresholds.MIN_SPARSE_GRADIENT_WIDTH
