"""Export modules to ONNX with torch's exporter; `rru.scan.onnx` says how it translates the layers."""

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rru.extras import extra


def exported(
    module: nn.Module,
    inputs: Sequence[Any],
    shapes: Any = None,
    names: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> bytes:
    """Return an ONNX file of a module in evaluation mode, without names of this machine's folders.

    **Arguments:** `inputs`: the arguments of an example call; `shapes`: which of their sizes are free, as torch takes
    them; `names`, `outputs`: the names of inputs and outputs. Default: the exporter's own.
    """
    with extra("onnx"):
        from onnx_ir.passes.common import ClearMetadataAndDocStringPass
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)  # it warns about packages that are not needed here
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's warnings about its own code
            program = torch.onnx.export(
                module.eval(),
                tuple(inputs),
                dynamic_shapes=shapes,
                input_names=names,
                output_names=outputs,
                verbose=False,
            )
    finally:
        logger.setLevel(level)
    assert program is not None
    ClearMetadataAndDocStringPass()(program.model)  # it contains paths of this machine
    content: bytes = program.model_proto.SerializeToString(deterministic=True)
    return content
