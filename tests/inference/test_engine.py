"""The C engine: what it computes, what it refuses, and that every compiler takes it."""

import json
import re
import struct
import zlib

import numpy as np
import pytest
import torch

import rru
from rru.inference.engine import layer_blob
from rru.inference.engine.blob import FIELDS
from tests.inference.c_engine import ENGINE, compiled, compilers
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
        matrices = [name for name, weight in cell.named_parameters() if weight.dim() == 2]
        alone = [name for name in matrices if not any(name in names for names in together)]
        for names in [*together, *((name,) for name in alone)]:
            weights = [getattr(cell, name) for name in names]
            scale = torch.cat(weights, 1).abs().amax(1, keepdim=True) / 127
            for weight in weights:
                weight.data = (weight.data / scale).round() * scale
    return copied


def options_of(layer):
    return {k: v for k, v in json.loads(layer.cells[0].options).items() if k not in ("input_size", "hidden_size")}


@pytest.fixture(scope="module")
def content():
    return layer_blob(layer_of(VARIANTS[0], 5, 4))


class TestBlobs:
    def test_every_changed_byte_is_refused(self, engine, content):
        for place in range(len(content)):
            changed = bytearray(content)
            changed[place] ^= 1 << place % 8
            assert engine.status(changed) is not None

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda content: content[:-16], "the model is not complete"),
            (lambda content: content[:10], "not a model that rru exported"),
            (lambda content: b"", "not a model that rru exported"),
            (lambda content: b"PK" + content[2:], "not a model that rru exported"),
            (lambda content: content[:4] + b"\1" + content[5:], "exported by another version of rru"),
            (lambda content: content[:-1] + b"\7", "its checksum is wrong"),
        ],
    )
    def test_the_message_says_why(self, engine, content, change, message):
        assert message in engine.status(change(content))

    def test_a_blob_that_is_not_aligned_is_refused(self, engine, content):
        assert "aligned to 8 bytes" in engine.status(content, aligned=False)

    def test_forged_numbers_with_the_right_checksum_are_refused_or_run(self, engine, content):
        random = np.random.default_rng(0)
        for _ in range(2000):
            engine.status(forged(content, random))  # a crash ends the process

    def test_python_c_and_javascript_have_the_same_numbers(self):
        (names,) = re.findall(r"typedef enum \{([^}]*)\} rru_field", (ENGINE / "rru.h").read_text())
        declared = re.findall(r"^  RRU_(\w+),", names, re.MULTILINE)
        assert tuple(name.lower() for name in declared) == FIELDS
        (listed,) = re.findall(r"RRU_FIELDS = \[(.*?)\]", (ENGINE / "rru.js").read_text(), re.DOTALL)
        assert tuple(re.findall(r'"(\w+)"', listed)) == FIELDS

    def test_weights_that_are_not_finite_cannot_be_exported(self):
        layer = layer_of(VARIANTS[0])
        layer.cells[0].weight_x.data[0, 0] = torch.inf
        with pytest.raises(ValueError, match="0 first has infinite or NaN weights"):
            layer_blob(layer)

    def test_layers_without_an_engine_say_so(self):
        own = type("OwnCell", (rru.LSTMCell,), {})
        layer = type("OwnLayer", (rru.nn.Layer,), {"cell_class": own})(3, 4)
        with pytest.raises(ValueError, match="OwnCell has no C engine: cells of rru, gru, lstm, mogrifier have"):
            layer_blob(layer)
        with pytest.raises(ValueError, match="a bidirectional layer cannot run step by step"):
            layer_blob(rru.RRU(3, 4, bidirectional=True))


def forged(content, random):
    """Return a blob with some words of its header and table changed, and the right checksum."""
    changed = bytearray(content)
    end = 24 + 4 * len(FIELDS) + 32 * struct.unpack_from("<I", content, 20)[0]
    for _ in range(random.integers(1, 4)):
        place = int(random.integers(4, end // 4)) * 4
        value = int(random.choice([0, 1, 2, 3, 5, 255, 65536, 2**24, 2**31 - 1, 2**32 - 1, random.integers(2**32)]))
        struct.pack_into("<I", changed, place, value)
    struct.pack_into("<I", changed, 12, zlib.crc32(changed[16:]))
    return bytes(changed)
