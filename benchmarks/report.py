"""The measurements as plain, aligned text."""

from collections.abc import Sequence
from typing import Any

from benchmarks.targets import BASES


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns: the first to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, ["-" * width for width in widths], *rows):
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _number(value: float | None, form: str = ".2f") -> str:
    return "" if value is None else format(value, form)


def _yes_or_no(met: bool | None) -> str:
    return {None: "", True: "yes", False: "NO"}[met]


def shape_table(result: dict[str, Any]) -> str:
    """Training or inference of every contender on one shape."""
    bases = [base for base in BASES if any(base in row["ratios"] for row in result["contenders"])]
    head = ["contender", "dropout", "back end", "hidden", "parameters", "ms", "GFLOP/s", "of GEMM"]
    rows = [
        [
            row["name"],
            _number(row["dropout"]),
            row["backend"],
            str(row["hidden_size"]),
            f"{row['parameters']:,}",
            _number(1e3 * row["median_seconds"]),
            _number(row["gflops"], ".1f"),
            _number(row["gemm_fraction"], ".0%"),
            *(_number(row["ratios"].get(base)) for base in bases),
        ]
        for row in result["contenders"]
    ]
    gemm = f"the machine's GEMM rate meanwhile: {result['gemm_gflops']:.1f} GFLOP/s"
    return table([*head, *(f"/ {base}" for base in bases)], rows) + "\n" + gemm


def comparison_table(comparisons: list[dict[str, Any]]) -> str:
    """Geometric means and worst shapes beside what is wanted of them."""
    head = ["time of / time of", "dropout", "shapes", "mean", "wanted", "met", "aim", "worst", "on", "wanted", "met"]
    rows = [
        [
            f"{row['name']} / {row['base']}",
            _number(row["dropout"]),
            str(row["shapes"]),
            _number(row["geometric_mean"]),
            _at_most(row["mean_target"]),
            _yes_or_no(row["mean_met"]),
            _at_most(row["aim"]),
            _number(row["worst"]),
            row["worst_shape"],
            _at_most(row["each_target"]),
            _yes_or_no(row["each_met"]),
        ]
        for row in comparisons
    ]
    return table(head, rows)


def _at_most(target: float | None) -> str:
    return "" if target is None else f"<= {target:.2f}"


def streaming_table(results: dict[str, dict[str, Any]]) -> str:
    """Microseconds of one step on each shape."""
    head = ["shape", "rru.RRUCell us", "nn.LSTMCell us", "ratio", "wanted", "met"]
    rows = []
    for name, result in results.items():
        medians = [_number(1e6 * result["median_seconds"][cell], ".1f") for cell in ("rru.RRUCell", "nn.LSTMCell")]
        rows.append([name, *medians, _number(result["ratio"]), _at_most(1.0), _yes_or_no(result["ratio"] <= 1.0)])
    return table(head, rows)


def growth_table(result: dict[str, Any]) -> str:
    """Time of a training step, in all and per time step, as sequences grow."""
    rows = [
        [str(row["steps"]), _number(1e3 * row["median_seconds"]), _number(1e6 * row["seconds_per_step"], ".1f")]
        for row in result["rows"]
    ]
    of_one = f"time per step, longest / shortest: {result['longest_to_shortest']:.2f} (linear growth: 1)"
    return table(["steps", "ms", "us per step"], rows) + "\n" + of_one


def threads_table(results: dict[str, dict[str, Any]]) -> str:
    """Training steps with one thread and with two."""
    counts = list(next(iter(results.values()))["rows"][0]["median_seconds"])
    rows = [
        [
            f"{shape}, {row['name']}",
            *(_number(1e3 * row["median_seconds"][count]) for count in counts),
            _number(row["speedup"]),
        ]
        for shape, result in results.items()
        for row in result["rows"]
    ]
    return table(["shape, contender", *(f"ms, threads: {count}" for count in counts), "times faster"], rows)


def memory_table(results: dict[str, dict[str, Any]]) -> str:
    """Peak memory of a training step, in MiB and beside nn.LSTM's."""
    rows = [
        [f"{shape}, {name}", _number(size / 2**20, ".1f"), _number(result["ratios"].get(name))]
        for shape, result in results.items()
        for name, size in result["bytes"].items()
    ]
    return table(["shape, contender", "MiB", "/ nn.LSTM"], rows)
