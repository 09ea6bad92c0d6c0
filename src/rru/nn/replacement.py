"""Replace the recurrent layers and cells of torch in a model with RRUs, without changing the model's code."""

from dataclasses import dataclass
from typing import Any, NoReturn

from torch import nn

from rru.nn import checks
from rru.nn.adapters import Adapter, CellAdapter, LayerAdapter

_ADAPTERS: dict[type[nn.Module], type[LayerAdapter] | type[CellAdapter]] = {
    nn.LSTM: LayerAdapter,
    nn.GRU: LayerAdapter,
    nn.RNN: LayerAdapter,
    nn.LSTMCell: CellAdapter,
    nn.GRUCell: CellAdapter,
    nn.RNNCell: CellAdapter,
}
_KEPT = ("input_size", "hidden_size", "output_size", "num_layers", "batch_first", "bidirectional", "device", "dtype")
_ITSELF = "the model itself"


@dataclass(frozen=True, repr=False)
class ReplaceReport:
    """What `replace` did to a model, by the names that `model.named_modules()` gives; "" is the model itself."""

    replaced: tuple[str, ...]
    """The layers and cells that are RRUs now."""

    skipped: dict[str, str]
    """The recurrent layers and cells that stay as they were, with the reasons."""

    def __repr__(self) -> str:
        replaced = f"replaced with RRUs: {', '.join(name or _ITSELF for name in self.replaced)}"
        return f"{replaced}\nnot replaced: {_listed(self.skipped)}" if self.skipped else replaced

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"rru.replace returns a report, which has no {name!r}: it changed the model in place")

    def __call__(self, *arguments: object, **keywords: object) -> NoReturn:
        raise TypeError("rru.replace returns a report, which cannot be called: it changed the model in place")


def replace(model: nn.Module, hidden: str = "same", **options: Any) -> ReplaceReport:
    """Replace torch's recurrent layers and cells in a model with RRUs that have the same interface, in place.

    ```python
    model = torch.nn.ModuleDict({"rnn": torch.nn.LSTM(8, 32), "head": torch.nn.Linear(32, 2)})
    print(rru.replace(model, hidden="equal_parameters", dropout=0.3))  # replaced with RRUs: rnn
    output, (h, c) = model["rnn"](torch.randn(5, 3, 8))  # as before
    ```

    `nn.LSTM`, `nn.GRU`, `nn.RNN` and their cells are replaced, also in plain lists, tuples and dicts. Each module turns
    into its replacement, so whatever refers to it sees the change, and its hooks stay. Subclasses are skipped, because
    they may compute something else. The RRUs are untrained. Create the optimizer after this call, because the
    parameters are new. On an error, the model is unchanged.

    In place of an LSTM, an RRU starts from the mean of h and c, and returns its state twice, as h and as c. In place of
    a cell, it returns its state; its output is not used.

    **Arguments:**

    - `model`: the model, or a layer or cell itself.
    - `hidden`: `"same"` or `"equal_parameters"`. Both keep the hidden size, which the model's code relies on. With
      `"same"` the RRU has its default expansion, and about twice the parameters of the layer it replaces.
      `"equal_parameters"` lowers the expansion until the RRU has no more parameters than that layer.
    - `options`: options of the RRUs, such as `expansion` or `dropout`. Default for `dropout`: the rate that the
      replaced layer applied between its layers, if it had several; the RRU applies it inside each step instead.

    **Returns:** a report with the names of what was `replaced`, and of what was `skipped` with the reasons.
    """
    checks.choice("hidden", hidden, ("same", "equal_parameters"))
    if hidden == "equal_parameters" and "expansion" in options:
        raise ValueError("expansion must not be given with hidden='equal_parameters', which chooses it")
    if fixed := [name for name in options if name in _KEPT]:
        raise TypeError(f"{fixed[0]} must not be given: an RRU takes it from the layer that it replaces")
    adapters: dict[str, tuple[nn.Module, Adapter]] = {}
    skipped: dict[str, str] = {}
    for module, name in _names(model).items():
        if isinstance(module, nn.RNNBase | nn.RNNCellBase):
            if reason := _why_not(module):
                skipped[name] = reason
            else:
                adapters[name] = module, _ADAPTERS[type(module)](module, hidden, options)  # type: ignore[arg-type]
    if not adapters and skipped:
        raise ValueError(f"nothing in the model can be replaced: {_listed(skipped)}")
    if not adapters:
        raise ValueError(
            f"the model must have an nn.LSTM, nn.GRU, nn.RNN or a cell of these, got a {type(model).__name__} with none"
        )
    for module, adapter in adapters.values():
        _become(module, adapter)
    return ReplaceReport(tuple(adapters), skipped)


def _listed(skipped: dict[str, str]) -> str:
    return "; ".join(f"{name or _ITSELF} ({reason})" for name, reason in skipped.items())


def _names(model: nn.Module) -> dict[nn.Module, str]:
    """Return all modules with their names: those that torch knows, then those in plain containers, as `rnns[0]`."""
    names = {module: name for name, module in model.named_modules()}
    searched: set[int] = set()

    def search(path: str, value: object) -> None:
        if id(value) in searched or not isinstance(value, nn.Module | list | tuple | dict):
            return
        searched.add(id(value))
        if isinstance(value, nn.Module):
            names.setdefault(value, path)
            parts = {f"{path}.{key}".strip("."): part for key, part in (value._modules | vars(value)).items()}
        elif isinstance(value, dict):
            parts = {f"{path}[{key!r}]": part for key, part in value.items()}
        else:
            parts = {f"{path}[{index}]": part for index, part in enumerate(value)}
        for name, part in parts.items():
            search(name, part)

    search("", model)
    return names


def _why_not(module: nn.RNNBase | nn.RNNCellBase) -> str:
    """Return why a recurrent module cannot be replaced; empty if it can."""
    if type(module) not in _ADAPTERS:
        torchs = next((kind.__name__ for kind in _ADAPTERS if isinstance(module, kind)), "RNNBase")
        return f"{type(module).__name__} is a subclass of nn.{torchs} and may compute something else"
    if getattr(module, "proj_size", 0):
        return f"it has proj_size={module.proj_size}, and an RRU cannot project its state"
    if any(not isinstance(getattr(module, name, None), nn.Parameter) for name in _weight_names(module)):
        return "its weights are computed from others, as by weight norm or pruning: remove that first"
    return ""


def _weight_names(module: nn.RNNBase | nn.RNNCellBase) -> list[str]:
    """Return the names of the weights that torch gave a module."""
    if isinstance(module, nn.RNNBase):
        return [name for names in module._all_weights for name in names]
    return ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if module.bias else [])]


def _become(module: nn.Module, adapter: Adapter) -> None:
    """Turn a module into its adapter, keeping its hooks, whose handles refer to the dicts that hold them."""
    hooks = {name: value for name, value in vars(module).items() if "_hook" in name}
    vars(module).clear()
    vars(module).update(vars(adapter) | hooks)
    module.__class__ = type(adapter)
