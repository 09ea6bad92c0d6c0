"""Compile the Triton kernels for several GPUs, without one, and print what each needs (docs/lab/2026-11-gpu.md).

    python tools/compile_kernels.py [--write]

The kernels are those that a training step launches at the shapes of the benchmark. Fails if one spills registers or
needs more shared memory than a consumer card has.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import rru
from benchmarks.contenders import RIVALS, RRU_REFERENCE, build
from benchmarks.shapes import SHAPES
from rru.scan.fused import devices
from rru.scan.fused.triton import pointwise

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_120": GPUTarget("cuda", 120, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
SHARED = 99 * 1024  # bytes that a program may use on consumer cards
TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int64: "*i64"}
Launch = tuple[Any, tuple[Any, ...], dict[str, Any]]


def layers() -> Iterator[tuple[str, rru.Layer, int]]:
    """Yield a title, a layer and its batch: the widest RRUs of the benchmark and the smallest, one of each rival."""
    for shape in (SHAPES["nottingham"], SHAPES["char-ptb"], SHAPES["mnist"]):
        yield f"RRU {shape.name}", build(RRU_REFERENCE, shape, 0.5).layer, shape.batch
    shape = SHAPES["word-ptb"]
    for name in RIVALS:
        layer = build(name, shape, 0.5).layer
        yield f"{name.removeprefix('rru.')} {shape.name}", layer, shape.batch
    yield "GRU, reset after", rru.GRU(64, 700, reset_after=True, dropout=0.5), shape.batch


def record(layer: rru.Layer, batch: int, autocast: bool) -> list[Launch]:
    """Return the launches of a training step over two steps of time; none is run."""
    launches: list[Launch] = []

    def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        launches.append((kernel, arguments, constants))

    layer.backend = "fused"
    devices.runs_triton, pointwise.launch = lambda device, dtype: True, launch
    with torch.autocast("cpu", enabled=autocast):
        outputs, _ = layer(torch.randn(2, batch, layer.input_size), lengths=torch.full((batch,), 2))
    outputs.float().sum().backward()
    return launches


def source(kernel: Any, arguments: tuple[Any, ...], constants: dict[str, Any]) -> tuple[ASTSource, dict[str, int]]:
    """Return a kernel as the compiler takes it, with the types of a call, and its options."""
    signature, values, attributes = {}, {}, {}
    options = {key: constants[key] for key in ("num_warps", "num_stages") if key in constants}
    passed = [*arguments, *(value for key, value in constants.items() if key not in options)]
    names = [*kernel.arg_names[: len(arguments)], *(key for key in constants if key not in options)]
    for name, value in zip(names, passed, strict=True):
        at = kernel.arg_names.index(name)
        if isinstance(value, torch.Tensor):
            signature[name], attributes[at,] = TYPES[value.dtype], [["tt.divisibility", 16]]
        elif value is None or name in constants:
            signature[name], values[at,] = "constexpr", value
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i64" if name == "threshold" else "i32"
    ordered = {name: signature[name] for name in kernel.arg_names}
    return ASTSource(kernel, ordered, values, attributes), options


def needs(compiled: Any, target: str) -> dict[str, int]:
    """Return the registers per thread, the spilled ones, and the bytes of shared memory of a compiled kernel."""
    if target.startswith("gfx"):
        text = compiled.asm["amdgcn"]
        # Not counted: scalar registers, which are spilled to vector registers, not to memory.
        registers, spilled = (
            int(re.search(rf"\.{name}:\s*(\d+)", text)[1]) for name in ("vgpr_count", "vgpr_spill_count")
        )
        return {"registers": registers, "spilled": spilled, "shared": compiled.metadata.shared}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack, local = (int(re.search(rf"{name}:(\d+)", text)[1]) for name in ("REG", "STACK", "LOCAL"))
    return {"registers": registers, "spilled": stack + local, "shared": compiled.metadata.shared}


def measure() -> dict[str, dict[str, dict[str, int]]]:
    """Compile every kernel for every target. Return the most that it needs at any shape, by kernel and target."""
    known, worst = set(), {}
    for title, layer, batch in layers():
        for autocast in (False, True):
            for kernel, arguments, constants in record(layer, batch, autocast):
                kernel_source, options = source(kernel, arguments, constants)
                key = kernel.__name__, str(kernel_source.signature), str(kernel_source.constants), str(options)
                if key in known:
                    continue
                known.add(key)
                print(f"{title}{', bf16' if autocast else ''}: {kernel.__name__}", file=sys.stderr)
                for name, target in TARGETS.items():
                    needed = needs(triton.compile(kernel_source, target=target, options=options), name)
                    before = worst.setdefault(kernel.__name__, {}).get(name, needed)
                    worst[kernel.__name__][name] = {key: max(needed[key], before[key]) for key in needed}
    return worst


def table(worst: dict[str, dict[str, dict[str, int]]]) -> str:
    """Return the table of the docs."""
    lines = [f"| kernel | {' | '.join(TARGETS)} |", "|---|" + "---|" * len(TARGETS)]
    for kernel, by_target in worst.items():
        cells = (f"{x['registers']}, {x['spilled']}, {x['shared'] / 1024:.1f}" for x in by_target.values())
        lines.append(f"| `{kernel}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table; with --write, put it into docs/lab/2026-11-gpu.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/lab/2026-11-gpu.md")
    write = parser.parse_args().write
    torch.manual_seed(0)
    worst = measure()
    print(table(worst))
    if write:
        page = ROOT / "docs/lab/2026-11-gpu.md"
        marked = f"<!-- kernels -->\n{table(worst)}\n<!-- end -->"
        page.write_text(re.sub(r"<!-- kernels -->.*?<!-- end -->", lambda _: marked, page.read_text(), flags=re.DOTALL))
    too_much = [
        f"{kernel} on {target}: {needed}"
        for kernel, by_target in worst.items()
        for target, needed in by_target.items()
        if needed["spilled"] or needed["shared"] > SHARED
    ]
    if too_much:
        sys.exit("registers spilled, or too much shared memory:\n" + "\n".join(too_much))


if __name__ == "__main__":
    main()
