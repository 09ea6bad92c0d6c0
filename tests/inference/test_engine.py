"""The C engine: what it computes, what it refuses, and that every compiler takes it."""

import ctypes
import math
import re
import shutil
import struct
import subprocess
import sys
import zlib
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

import rru
from rru import data, inference
from rru.data.own.filling import filled
from rru.inference.engine import blob, layer_blob
from rru.inference.engine.blob import FIELDS
from rru.inference.engine.folder import FLAGS, SOURCES
from rru.inference.line_reader import LineReader
from rru.nn.registry import register_cell
from rru.tasks import JointHead
from tests.inference.c_engine import ENGINE, STRICT, Engine, compiled, compilers, zig
from tests.variants import VARIANTS

every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


def layer_of(variant, m=37, n=21, **arguments):
    torch.manual_seed(0)
    layer = variant.layer(m, n, **variant.options | arguments)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.15)
    return layer.eval()


def inputs_of(m, steps=30):
    x = torch.randn(steps, 1, m, generator=torch.Generator().manual_seed(1))
    x[::3] = (x[::3] > 1).float()  # as music is: mostly zeros, which products skip
    return x


@pytest.fixture(scope="module", params=compilers())
def engine(request, tmp_path_factory):
    """The engine, by each compiler with and without vector instructions."""
    return compiled(request.param, tmp_path_factory.mktemp("engine"))


class TestLayers:
    @every_variant
    @pytest.mark.parametrize("layers", [1, 3])
    def test_steps_are_those_of_pytorch(self, engine, variant, layers):
        layer, x = layer_of(variant, num_layers=layers), inputs_of(37)
        with torch.no_grad():
            expected, last = layer(x)
        model = engine.model(layer_blob(layer))
        found = np.stack([model.step(row) for row in x[:, 0].numpy()])
        np.testing.assert_allclose(found, expected[:, 0].numpy(), rtol=1e-5, atol=1e-5)
        parts = (last,) if isinstance(last, torch.Tensor) else last
        state = torch.stack(parts, 1)[:, :, 0].flatten().numpy()  # layer by layer, h and then c
        np.testing.assert_allclose(model.state(), state, rtol=1e-5, atol=1e-5)

    @every_variant
    def test_int8_computes_with_the_rounded_weights(self, engine, variant):
        layer, x = layer_of(variant), inputs_of(37)
        model = engine.model(layer_blob(layer, int8=True))
        found = np.stack([model.step(row) for row in x[:, 0].numpy()])
        with torch.no_grad():
            rounded = with_rounded_rows(layer)(x)[0][:, 0].numpy()
            exact = layer(x)[0][:, 0].numpy()
        scale = np.abs(exact).max()
        assert np.abs(found - rounded).max() < 5e-4 * scale  # inputs of products are rounded to 16 bits
        assert np.abs(found - exact).max() < 0.1 * scale

    def test_reset_begins_again_from_the_initial_state(self, engine):
        layer, x = layer_of(VARIANTS[0]), inputs_of(37, 5)[:, 0].numpy()
        model = engine.model(layer_blob(layer))
        first = [model.step(row) for row in x]
        model.reset()
        np.testing.assert_array_equal(first, [model.step(row) for row in x])
        assert not np.array_equal(first, [model.step(row) for row in x])

    def test_a_state_can_be_kept_and_put_back(self, engine):
        layer, x = layer_of(VARIANTS[0]), inputs_of(37, 6)[:, 0].numpy()
        model = engine.model(layer_blob(layer))
        model.step(x[0])
        kept = model.state()
        first = [model.step(row) for row in x[1:]]
        model.set_state(kept)
        np.testing.assert_array_equal(first, [model.step(row) for row in x[1:]])

    def test_what_is_not_finite_stays_so(self, engine):
        for int8 in (False, True):
            model = engine.model(layer_blob(layer_of(VARIANTS[0]), int8=int8))
            x = np.zeros(37, np.float32)
            x[3] = np.nan
            assert np.isnan(model.step(x)).any()

    def test_large_values_saturate_gates(self, engine):
        layer = layer_of(next(v for v in VARIANTS if v.name == "lstm"))
        x = torch.full((4, 1, 37), 1e4)
        with torch.no_grad():
            expected = layer(x)[0][:, 0].numpy()
        model = engine.model(layer_blob(layer))
        np.testing.assert_allclose([model.step(row) for row in x[:, 0].numpy()], expected, atol=1e-5)


def with_rounded_rows(layer):
    """Return a copy of a layer whose matrices are rounded as for int8: each row of a product has 255 levels."""
    copied = type(layer)(layer.input_size, layer.hidden_size, **options_of(layer)).eval()
    copied.load_state_dict(layer.state_dict())
    for cell in copied.cells:
        together = [("weight_x", "weight_h")] if not getattr(cell, "reset_after", False) else []
        alone = [name for name, weight in cell.named_parameters() if weight.dim() == 2 and name not in sum(together, ())]
        for names in [*together, *((name,) for name in alone)]:
            weights = [getattr(cell, name) for name in names]
            scale = torch.cat(weights, 1).abs().amax(1, keepdim=True) / 127
            for weight in weights:
                weight.data = (weight.data / scale).round() * scale
    return copied


def options_of(layer):
    import json

    return {k: v for k, v in json.loads(layer.cells[0].options).items() if k not in ("input_size", "hidden_size")}
