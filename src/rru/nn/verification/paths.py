"""Every path that a model can take: back ends, graphs, other runtimes, roundings, single steps.

To add one, such as another runtime, write a function that prepares it and add it to `paths`.
"""

import functools
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rru.extras import extra
from rru.nn.layer import Layer
from rru.nn.onnx_export import exported
from rru.nn.quantization import quantize
from rru.nn.verification.case import Case, Results, layers_of
from rru.scan.native import library

ROUNDING = {torch.float64: 1e-9, torch.float32: 2e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""By the dtype of the weights, the share of a result's norm by which it may differ from float64. A ReLU decides by the
last bit, so gradients differ more than outputs."""
BFLOAT16, INT8 = 2e-1, 1e-1
"""The same for products in bfloat16, whose gradients differ more than outputs, and for int8, which has outputs only."""
Run = Callable[[], Results]


class CannotRunError(Exception):
    """A path cannot run this model; the message says why."""


@dataclass(frozen=True)
class Path:
    """A way to run a model.

    **Arguments:**

    - `name`: what the table calls it.
    - `prepare`: takes a case, and returns a function that runs it and returns outputs and, if it has them, gradients.
      Either raises any error if the path cannot run.
    - `tolerance`: the share of a result's norm by which it may differ; None for that of the weights' dtype.
    """

    name: str
    prepare: Callable[[Case], Run]
    tolerance: float | None = None


def paths() -> list[Path]:
    """Return all paths, whether they can run here or not."""
    native = library.INSTRUCTION_SETS or ("",)
    return [
        Path("reference", functools.partial(_backend, "reference")),
        *[Path(f"native {name}".strip(), functools.partial(_native, name)) for name in native],
        Path("fused", functools.partial(_backend, "fused")),
        Path("stepper", _stepper),
        Path("torch.compile", _compiled),
        Path("torch.export", _exported),
        Path("ONNX", _onnx),
        Path("bfloat16", _bfloat16, BFLOAT16),
        Path("int8", _int8, INT8),
    ]


def _backend(name: str, case: Case) -> Run:
    model = case.on(name)
    return lambda: case.outputs_and_gradients(model)


def _native(instruction_set: str, case: Case) -> Run:
    if not library.BUILT:
        raise CannotRunError("this install has no native library")
    model = case.on("native")

    def run() -> Results:
        with library.using(instruction_set):
            return case.outputs_and_gradients(model)

    return run


def _stepper(case: Case) -> Run:
    model = case.on("auto")
    for layer in layers_of(model):
        vars(layer)["forward"] = functools.partial(step_by_step, layer)
    return lambda: case.outputs(model)


def step_by_step(
    layer: Layer,
    input: Tensor,
    state: Any = None,
    *,
    lengths: object = None,
    hx: Any = None,
    resets: Tensor | None = None,
    reset_state: Any = None,
) -> tuple[Tensor, Any]:
    """Return what a layer returns, computed with its stepper, one step after the other."""
    if not isinstance(input, Tensor) or lengths is not None:
        raise CannotRunError("the model gives lengths or packed sequences, which a step does not have")
    if input.dim() != 3:
        raise CannotRunError("the model runs a single sequence without a batch dimension")
    stepper, outputs, time_at = layer.stepper(), [], 1 if layer.batch_first else 0
    state = hx if state is None else state
    masks = [None] * input.shape[time_at] if resets is None else resets.unbind(time_at)
    for x, mask in zip(input.unbind(time_at), masks, strict=True):
        output, state = stepper(x.contiguous(), state, resets=mask, reset_state=None if mask is None else reset_state)
        outputs.append(output)
    return torch.stack(outputs, time_at), state


def _compiled(case: Case) -> Run:
    model = case.on("auto")
    compiled = torch.compile(model)
    return lambda: case.outputs_and_gradients(model, call=compiled)


def _exported(case: Case) -> Run:
    program, content = torch.export.export(case.on("auto"), case.arguments()), io.BytesIO()
    torch.export.save(program, content)
    content.seek(0)
    loaded = torch.export.load(content).module()
    return lambda: case.outputs(loaded)


def _onnx(case: Case) -> Run:
    with extra("onnx"):
        import onnxruntime
    arguments = case.arguments()
    if not all(isinstance(value, Tensor) for value in arguments):
        raise CannotRunError("only models whose arguments are tensors are compared")
    content = exported(case.on("auto"), arguments)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    given = {name: value.cpu().numpy() for name, value in zip(names, arguments, strict=True)}

    def run() -> Results:
        results = [torch.from_numpy(result) for result in session.run(None, given)]
        return case.outputs(lambda *_: results)

    return run


def _bfloat16(case: Case) -> Run:
    if case.dtype != torch.float32:
        raise CannotRunError(f"autocast is for float32 weights, these are {case.dtype}")
    model = case.on("auto")

    def call(*arguments: Any) -> Any:
        with torch.autocast(case.device.type, torch.bfloat16):
            return model(*arguments)

    return lambda: case.outputs_and_gradients(model, call=call)


def _int8(case: Case) -> Run:
    model: nn.Module = quantize(case.on("auto"))
    return lambda: case.outputs(model)
