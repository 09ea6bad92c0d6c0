"""RRUs with the interfaces of torch's recurrent layers and cells, for `rru.replace`."""

import bisect
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.utils.rnn import PackedSequence

from rru.nn import checks, tracing
from rru.nn.rru import RRU, RRUCell
from rru.nn.sizing import count_parameters

TorchState = Tensor | tuple[Tensor, Tensor]
"""A state as torch's layers have it: one tensor, or the pair (h, c) of an LSTM."""

Built = TypeVar("Built", RRU, RRUCell)


class Adapter(nn.Module):
    """Base class of both adapters.

    In place of an LSTM, it starts from the mean of h and c, so that both get gradients, and returns its state as h and
    a copy of it as c. So passing the pair on continues from exactly the state before.
    """

    pair: bool
    weights_in: str  # for errors

    def __init__(self, module: nn.RNNBase | nn.RNNCellBase, *names: str) -> None:
        super().__init__()
        self.pair = isinstance(module, nn.LSTM | nn.LSTMCell)
        for name in ("input_size", "hidden_size", "bias", *names):
            setattr(self, name, getattr(module, name))

    def before(self, hx: TorchState | None) -> Tensor | None:
        """Return the RRU's state for a state that the caller gave."""
        if hx is None or (isinstance(hx, Tensor) and not self.pair):
            return hx
        if isinstance(hx, Tensor) or not self.pair:
            raise TypeError(f"hx must be {'a pair (h, c)' if self.pair else 'a tensor'}, got {type(hx).__name__}")
        shapes = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in hx]
        if len(hx) != 2 or shapes[0] != shapes[1] or isinstance(shapes[0], str):
            raise ValueError(
                f"hx must be a pair (h, c) of tensors of the same shape, got {' and '.join(map(str, shapes))}"
            )
        return (hx[0] + hx[1]) / 2

    def after(self, state: Tensor) -> TorchState:
        """Return the state that the caller expects."""
        return (state, state.clone()) if self.pair else state

    def __getattr__(self, name: str) -> Any:
        checks.refuse_torchs_weight(self, name, self.weights_in)
        return super().__getattr__(name)


class LayerAdapter(Adapter):
    """An RRU (`layer`) in place of an `nn.LSTM`, `nn.GRU` or `nn.RNN`."""

    weights_in = ".layer.cells"

    def __init__(self, module: nn.RNNBase, hidden: str, options: dict[str, Any]) -> None:
        super().__init__(module, "mode", "num_layers", "batch_first", "bidirectional", "proj_size")
        shared = {name: getattr(module, name) for name in ("num_layers", "batch_first", "bidirectional")}
        shared["dropout"] = module.dropout if module.num_layers > 1 else 0.0
        build = functools.partial(RRU, module.input_size, module.hidden_size, **shared | options)
        self.layer = _built(build, module, hidden)
        self.train(module.training)

    @property
    def dropout(self) -> float:
        """The dropout rate of the RRU."""
        return self.layer.dropout

    def forward(
        self, input: Tensor | PackedSequence, hx: TorchState | None = None
    ) -> tuple[Tensor | PackedSequence, TorchState]:
        """Run the RRU; arguments and results are those of the layer it replaces."""
        if isinstance(input, Proxy):
            return tracing.fx_node(self, input, hx=hx)
        output, state = self.layer(input, self.before(hx))
        return output, self.after(state)

    def reset_parameters(self) -> None:
        """Initialize all weights."""
        self.layer.reset_parameters()

    def flatten_parameters(self) -> None:
        """Do nothing. Exists so that code written for `torch.nn.LSTM` runs unchanged."""


class CellAdapter(Adapter):
    """An `RRUCell` (`cell`) in place of an `nn.LSTMCell`, `nn.GRUCell` or `nn.RNNCell`.

    Those have no output besides their state, so the RRU's output (Eq. 6) is not used: its weights are as small as
    possible, and frozen.
    """

    weights_in = ".cell"

    def __init__(self, module: nn.RNNCellBase, hidden: str, options: dict[str, Any]) -> None:
        super().__init__(module)
        of_cell = {name: value for name, value in options.items() if name != "backend"}
        build = functools.partial(RRUCell, module.input_size, module.hidden_size, output_size=1, **of_cell)
        self.cell = _built(build, module, hidden)
        self.cell.weight_o.requires_grad_(False)
        self.cell.bias_o.requires_grad_(False)
        self.train(module.training)

    def forward(self, input: Tensor, hx: TorchState | None = None) -> TorchState:
        """Run one step; arguments and results are those of the cell it replaces."""
        if isinstance(input, Proxy):
            return tracing.fx_node(self, input, hx=hx)
        _, state = self.cell(input, self.before(hx))
        return self.after(state)

    def reset_parameters(self) -> None:
        """Initialize all weights."""
        self.cell.reset_parameters()


def _built(build: Callable[..., Built], module: nn.Module, hidden: str) -> Built:
    """Build an RRU in place of a module, on its device and in its dtype; with its parameter budget if asked."""
    if hidden == "equal_parameters":
        build = functools.partial(build, expansion=_largest_expansion(build, count_parameters(module)))
    weight = next(module.parameters())
    return build(device=weight.device, dtype=weight.dtype)


def _largest_expansion(build: Callable[..., nn.Module], budget: int) -> float:
    """Return the largest expansion, up to the default, whose RRU fits the parameter budget; in steps of 1/1024."""

    def parameters(steps: int) -> int:
        try:
            return count_parameters(build(expansion=steps / 1024, device="meta"))
        except ValueError:  # too small for a single unit
            return 0

    most = round(RRUCell.arguments["expansion"].default * 1024)
    return bisect.bisect_right(range(1, most + 1), budget, key=parameters) / 1024
