"""The native scan of narrow RRUs, whose backward loop adds up the weight gradients. See native/rru_narrow.h."""

from torch import Tensor

from rru.scan.arguments import ScanArguments
from rru.scan.native.rru import NativeRRU, outer_gradients
from rru.scan.native.spec import BackwardPass, Shapes, TensorSpec


class NativeNarrowRRU(NativeRRU):
    """The backward loop of an RRU with one ReLU layer, and weights that stay in the cache."""

    name = "rru_narrow"

    def backward_numbers(self, arguments: ScanArguments, saved: list[Tensor], wants_x: bool) -> dict[str, int]:
        return {"wants_x": int(wants_x)}

    def backward_buffers(self, arguments: ScanArguments, numbers: dict[str, int]) -> Shapes:
        (steps, batch, m, n), options = arguments.sizes, arguments.spec.options
        p, g = options.output_size, options.expanded_size
        grad_x: Shapes = [TensorSpec((steps, batch, m), returned=True)] if numbers["wants_x"] else []
        return [(n,), (n, g), (p, g), (n + p,), (g, m), (g, n), (g,), *grad_x]

    def input_gradient(self, done: BackwardPass) -> Tensor:
        return done.buffers[-1]

    def gradients(self, done: BackwardPass) -> list[Tensor]:
        grad_kept, grad_c, grad_o, bias, *inner = done.buffers[:7]
        return [*inner, *outer_gradients(done.arguments, grad_c, grad_o, bias, grad_kept)]

    def small_gradients(self, done: BackwardPass) -> None:
        return None
