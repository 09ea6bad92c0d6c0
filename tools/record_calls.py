"""Record calls of the native library, forward and backward, for native/selfcheck.cpp to replay on other machines.

    python tools/record_calls.py calls.bin

Each layer first runs on plain PyTorch too: only calls whose outputs and gradients agree with it are recorded.
"""

import argparse
import ctypes
import struct
from pathlib import Path
from typing import Any

import torch

import rru
from rru.scan import thresholds
from rru.scan.native import library

CELLS: list[tuple[type[rru.Layer], dict[str, Any]]] = [
    (rru.RRU, {}),
    (rru.RRU, {"relu_layers": 3, "output_size": 11}),
    (rru.RRU, {"normalize": False, "residual": "unscaled", "activate_outputs": True, "rezero": "scalar"}),
    (rru.GRU, {}),
    (rru.GRU, {"reset_after": True}),
    (rru.LSTM, {}),
    (rru.MogrifierLSTM, {"rounds": 5, "rank": 7}),
    (rru.MogrifierLSTM, {"rounds": 4, "rank": 0}),
]
SIZES = [(6, 5, 19, 37, 0.0), (4, 1, 3, 5, 0.3), (3, 6, 9, 130, 0.7)]  # T, B, m, n, dropout; the last is also sparse
TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-9}


def block(content: bytes) -> bytes:
    """Return bytes after their number."""
    return struct.pack("<q", len(content)) + content


class Recorder:
    """Stands in for `Function.__call__` and keeps what every call read and wrote."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.original = library.Function.__call__

    def __call__(self, function: Any, memory: Any) -> None:
        """Call the function and record it."""
        places = list(zip(memory[::2], memory[1::2], strict=True))
        before = [ctypes.string_at(address, size) if size else b"" for address, size in places]
        self.original(function, memory)
        after = [ctypes.string_at(address, size) if size else b"" for address, size in places]
        name = function._name.removesuffix("_" + library.instruction_set).encode()
        threads = 1 if function._single_threaded else torch.get_num_threads()
        numbers = struct.pack(f"<{len(function._numbers) + 1}q", len(function._numbers), *function._numbers)
        tensors = b"".join(  # nothing for what was not written
            block(old) + block(new if new != old else b"") for old, new in zip(before, after, strict=True)
        )
        call = block(name) + block(function._names) + numbers + struct.pack("<qq", threads, len(places)) + tensors
        self.calls.append(call)

    def write(self, path: Path) -> None:
        """Write all calls as native/selfcheck.cpp reads them."""
        path.write_bytes(struct.pack("<q", len(self.calls)) + b"".join(self.calls))


def results(layer: rru.Layer, x: torch.Tensor, arguments: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Return the outputs of a layer and all gradients of a loss that reads every output and state."""
    torch.manual_seed(1)
    layer.zero_grad()
    x = x.clone().requires_grad_()
    output, state = layer(x, **arguments)
    parts = [output, *(state if isinstance(state, tuple) else (state,))]
    loss = torch.stack([(part * torch.linspace(-1, 1, part.numel()).view_as(part)).sum() for part in parts]).sum()
    loss.backward()
    assert x.grad is not None
    return [output.detach(), x.grad, *(weight.grad for weight in layer.parameters() if weight.grad is not None)]


def record(recorder: Recorder, layer_class: type[rru.Layer], options: dict[str, Any], dtype: torch.dtype) -> None:
    """Record one kind of cell: in both directions, with and without lengths; in one direction with resets."""
    for steps, batch, m, n, dropout in SIZES:
        torch.manual_seed(0)
        given = dict(options, dropout=dropout, dtype=dtype, backend="native")
        both, one = (layer_class(m, n, bidirectional=directions, **given) for directions in (True, False))
        for weight in (*both.parameters(), *one.parameters()):  # some start at zero, and would hide mistakes
            torch.nn.init.normal_(weight, std=0.3)
        x = torch.randn(steps, batch, m, dtype=dtype)
        lengths, resets = torch.arange(batch) % steps + 1, torch.arange(steps * batch).view(steps, batch) % 3 == 1
        for layer, arguments in ((both, {}), (both, {"lengths": lengths}), (one, {"resets": resets})):
            layer.backend = "reference"
            expected = results(layer, x, arguments)
            layer.backend = "native"
            library.Function.__call__ = lambda function, memory: recorder(function, memory)  # type: ignore[method-assign]
            try:
                got = results(layer, x, arguments)
            finally:
                library.Function.__call__ = recorder.original  # type: ignore[method-assign]
            for value, other in zip(got, expected, strict=True):
                scale = max(other.abs().max().item(), 1e-3)
                torch.testing.assert_close(value, other, rtol=0, atol=TOLERANCES[dtype] * scale)


def main() -> None:
    """Record all cells in both types."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    output: Path = parser.parse_args().output
    recorder = Recorder()
    for small in (thresholds.MIN_PARALLEL_WORK, 0):  # on one thread with all gradients, and on several
        thresholds.MIN_PARALLEL_WORK = small
        for dtype in TOLERANCES:
            for layer_class, options in CELLS:
                record(recorder, layer_class, options, dtype)
    recorder.write(output)
    print(f"{output}: {len(recorder.calls)} calls, {output.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
