"""Replace the nn.LSTM and nn.GRU layers of a model with RRUs, without changing the model's code."""

import bisect
import functools
from collections.abc import Callable
from typing import Any, TypeGuard

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rru.nn import checks
from rru.nn.rru import RRU
from rru.nn.sizing import count_parameters


def replace(model: nn.Module, hidden: str = "same", **options: Any) -> nn.Module:
    """Replace every `nn.LSTM` and `nn.GRU` in a model with an RRU that has the same interface.

    ```python
    model = torch.nn.ModuleDict({"rnn": torch.nn.LSTM(8, 32), "head": torch.nn.Linear(32, 2)})
    rru.replace(model, hidden="equal_parameters", dropout=0.3)
    output, (h, c) = model["rnn"](torch.randn(5, 3, 8))  # as before
    ```

    The RRUs are untrained. Create the optimizer after this call, because the parameters are new.

    **Arguments:**

    - `model`: the model, changed in place; or an `nn.LSTM` or `nn.GRU` itself.
    - `hidden`: `"same"` or `"equal_parameters"`. Both keep the hidden size, which the model's code relies on. With
      `"same"` the RRU has its default expansion, and about twice the parameters of the layer it replaces.
      `"equal_parameters"` lowers the expansion until the RRU has no more parameters than that layer.
    - `options`: options of the RRUs, such as `expansion` or `dropout`. Default for `dropout`: the rate that the
      replaced layer applied between its layers, if it had several; the RRU applies it inside each step instead.

    **Returns:** the model, or the replacement if `model` is itself a layer.
    """
    checks.choice("hidden", hidden, ("same", "equal_parameters"))
    if hidden == "equal_parameters" and "expansion" in options:
        raise ValueError("expansion must not be given with hidden='equal_parameters', which chooses it")
    replacements: dict[nn.Module, Replacement] = {}  # a layer used in several places stays shared

    def replacement(module: nn.LSTM | nn.GRU) -> Replacement:
        if module not in replacements:
            replacements[module] = Replacement(module, hidden, options)
        return replacements[module]

    if _is_replaceable(model):
        return replacement(model)
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if _is_replaceable(child):
                parent._modules[name] = replacement(child)
    if not replacements:
        raise ValueError(f"the model must hold an nn.LSTM or nn.GRU, got a {type(model).__name__} without one")
    return model


def _is_replaceable(module: nn.Module | None) -> TypeGuard[nn.LSTM | nn.GRU]:
    return type(module) in (nn.LSTM, nn.GRU)  # a subclass may compute something else


class Replacement(nn.Module):
    """An RRU (`layer`) with the interface of an `nn.LSTM` or `nn.GRU`.

    As an LSTM, it returns its state as both h and c, and starts from the given h, ignoring c.
    """

    def __init__(self, module: nn.LSTM | nn.GRU, hidden: str, options: dict[str, Any]) -> None:
        super().__init__()
        if module.proj_size:
            raise ValueError(f"proj_size must be 0 to replace an nn.LSTM, got {module.proj_size}")
        for name in ("mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional"):
            setattr(self, name, getattr(module, name))
        shared = {name: getattr(module, name) for name in ("num_layers", "batch_first", "bidirectional")}
        shared["dropout"] = module.dropout if module.num_layers > 1 else 0.0
        build = functools.partial(RRU, module.input_size, module.hidden_size, **shared | options)
        if hidden == "equal_parameters":
            build.keywords["expansion"] = _largest_expansion(build, count_parameters(module))
        weight = next(module.parameters())
        self.layer = build(device=weight.device, dtype=weight.dtype)
        self.train(module.training)

    @property
    def dropout(self) -> float:
        """The dropout rate of the RRU."""
        return self.layer.dropout

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor | tuple[Tensor, Tensor]]:
        """Run the RRU; arguments and results are those of `nn.LSTM` or `nn.GRU`."""
        pair = self.mode == "LSTM"
        if hx is not None and isinstance(hx, tuple | list) != pair:
            raise TypeError(f"hx must be {'a pair (h, c)' if pair else 'a tensor'}, got {type(hx).__name__}")
        h = hx[0] if isinstance(hx, tuple | list) else hx
        output, state = self.layer(input, h)
        return output, (state, state) if pair else state

    def flatten_parameters(self) -> None:
        """Do nothing. Exists so that code written for `torch.nn.LSTM` runs unchanged."""

    def __getattr__(self, name: str) -> Any:
        checks.refuse_torchs_weight(self, name, ".layer.cells")
        return super().__getattr__(name)


def _largest_expansion(build: Callable[..., RRU], budget: int) -> float:
    """Return the largest expansion, up to the default, whose RRU fits the parameter budget; in steps of 1/1024."""

    def parameters(steps: int) -> int:
        try:
            return count_parameters(build(expansion=steps / 1024, device="meta"))
        except ValueError:  # too small for a single unit
            return 0

    most = round(RRU.cell_class.arguments["expansion"].default * 1024)
    return bisect.bisect_right(range(1, most + 1), budget, key=parameters) / 1024
