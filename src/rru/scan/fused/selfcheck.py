"""Compare the fused scan with the reference on this machine, before `backend="auto"` first takes it.

No GPU was at hand when the kernels were written. So the first time that a process runs a kind of scan on a device, a
tiny case is run both ways. If anything differs or fails, a warning says so once, and the reference is used.
`RRU_SELF_CHECK=0` turns this off; `backend="fused"` never checks.
"""

import importlib.metadata
import json
import os
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from rru.scan import reference
from rru.scan.cells import AnyCell
from rru.scan.differences import difference
from rru.scan.fused.devices import may_use_tf32
from rru.scan.operator import registered
from rru.scan.reference import Resets, ScanInputs
from rru.scan.thresholds import MAX_WHOLE_STATE, MAX_WHOLE_UNITS

_STEPS, _BATCH = 3, 2
_SMALL, _WIDE = (
    7,
    MAX_WHOLE_STATE + 2,
)  # hidden sizes on either side of the limit up to which the whole loop is one kernel
_dispatch_modes = torch._C._len_torch_dispatch_stack
_verdicts: dict[tuple[Any, ...], bool] = {}


def is_trusted(cell: AnyCell, inputs: ScanInputs) -> bool:
    """Return whether this kind of fused scan agrees with the reference on this device; the first time, check it."""
    device = inputs.x.device
    return _verdict(
        str(cell.kernel),
        cell.options,
        0.0 if inputs.seed is None else 0.5,
        str(device),
        cell.some_weight().dtype,
        reference.autocast_dtype(device.type),
        inputs.resets is not None,
    )


def _verdict(
    kernel: str,
    options: str,
    dropout: float,
    device: str,
    dtype: torch.dtype,
    autocast: torch.dtype | None,
    has_resets: bool,
) -> bool:
    """Return the verdict on a kind of scan, from memory if it is known. torch.compile runs this while it traces."""
    if os.environ.get("RRU_SELF_CHECK") == "0":
        return True
    key = kernel, _tiny(options), dropout, device, dtype, autocast, has_resets
    if key not in _verdicts:
        if bool(_dispatch_modes()) or (device.startswith("cuda") and torch.cuda.is_current_stream_capturing()):
            return True  # values cannot be read now
        problem = _compare(*key)
        if problem:
            warnings.warn(_report(key, problem), RuntimeWarning, stacklevel=2)
        _verdicts[key] = not problem
    return _verdicts[key]


_verdict._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compiler's way would import the compiler


def _compare(
    kernel: str,
    options: str,
    dropout: float,
    device: str,
    dtype: torch.dtype,
    autocast: torch.dtype | None,
    has_resets: bool,
) -> str:
    """Run a tiny case both ways. Return what differs in outputs, states or gradients; empty if nothing does."""
    from rru.scan.fused import run as fused

    random = torch.Generator().manual_seed(0)  # not torch's own: a check must not change a user's random numbers

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, dtype=dtype).mul_(0.3).to(device).requires_grad_()

    try:
        with torch.inference_mode(False), torch.enable_grad():
            made: Any = registered[kernel]
            cell = made(**json.loads(options), dropout=dropout, device="meta")
            for name, shape in cell.weight_shapes.items():
                setattr(cell, name, nn.Parameter(draw(*shape)))
            x, state = draw(_STEPS, _BATCH, cell.input_size), [draw(_BATCH, cell.hidden_size) for _ in cell.state_names]
            lengths = torch.tensor([_STEPS, 1], device=device)
            seed = torch.tensor(7, device=device) if dropout else None
            mask = torch.arange(_STEPS * _BATCH, device=device).view(_STEPS, _BATCH) == 2  # the second step of a row
            resets = Resets(mask, tuple(reversed(state))) if has_resets else None
            results: list[list[Tensor]] = []
            for scan in (fused.scan, reference.scan):
                with torch.autocast(torch.device(device).type, dtype=autocast, enabled=autocast is not None):
                    outputs, last = scan(cell, ScanInputs(x, tuple(state), lengths, seed, resets=resets))
                total = outputs.to(dtype).square().sum() + sum(part.square().sum() for part in last)
                results.append([outputs, *last, *torch.autograd.grad(total, [x, *state, *cell.parameters()])])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    names = ["outputs", *(f"last {name}" for name in cell.state_names)]
    names += [f"gradient of {name}" for name in ("input", *cell.state_names, *cell.weight_shapes)]
    computed, wanted = results
    return _difference(names, computed, wanted, _tolerance(dtype, autocast))


def _tolerance(dtype: torch.dtype, autocast: torch.dtype | None) -> float:
    """Return the share of a tensor's norm by which it may differ."""
    if autocast is not None:
        return 5e-2
    if dtype == torch.float64:
        return 1e-9
    return 2e-2 if may_use_tf32() else 2e-3


def _difference(names: list[str], computed: list[Tensor], wanted: list[Tensor], tolerance: float) -> str:
    for name, actual, expected in zip(names, computed, wanted, strict=True):
        if not (share := difference(actual, expected)) <= tolerance:  # NaN is a difference too
            return f"{name} differ by {share:.3g} of their norm"
    return ""


def _tiny(options: str) -> str:
    """Return the options of a small cell of the same kind that runs the same kernels."""
    given = json.loads(options)
    units = given.get("expansion", 0) * (given["input_size"] + given["hidden_size"])
    size = _WIDE if given["hidden_size"] > MAX_WHOLE_STATE or round(units) > MAX_WHOLE_UNITS else _SMALL
    of_rru = {"output_size": 4, "expansion": 2.0} if "expansion" in given else {}
    return json.dumps(given | {"input_size": 5, "hidden_size": size} | of_rru)


def _report(key: tuple[Any, ...], problem: str) -> str:
    """Return the warning, with what to report."""
    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = "none"
    device = key[3]
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return (
        f"the fused scan disagrees with the reference on this device, so the slower reference is used. "
        f"Please report: {' '.join(map(str, key))}, {name}, torch {torch.__version__}, triton {triton}: {problem}"
    )
