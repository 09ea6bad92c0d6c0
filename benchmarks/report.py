"""Format measurements as text tables."""

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.targets import BASES


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats a table: the first column left-aligned, the others right-aligned."""
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
    """Formats training or inference of all contenders on one shape."""
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
    gemm = f"GEMM rate during the measurement: {result['gemm_gflops']:.1f} GFLOP/s"
    return table([*head, *(f"/ {base}" for base in bases)], rows) + "\n" + gemm


def comparison_table(comparisons: list[dict[str, Any]]) -> str:
    """Formats geometric means, worst shapes and targets."""
    head = ["time of / time of", "dropout", "shapes", "mean", "target", "met", "goal", "worst", "on", "target", "met"]
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
    names = list(next(iter(results.values()))["median_seconds"])
    head = ["shape", *(f"{name} us" for name in names), "ratios to nn.LSTMCell", "wanted", "met", "int8 / rru.RRUCell"]
    rows = []
    for shape, result in results.items():
        medians = [_number(1e6 * result["median_seconds"][name], ".1f") for name in names]
        ratios = result["ratios"].values()
        shown = "  ".join(f"{name} {_number(ratio)}" for name, ratio in result["ratios"].items())
        int8 = "  ".join(f"{name} {_number(ratio)}" for name, ratio in result["int8_ratios"].items())
        rows.append([shape, *medians, shown, _at_most(1.0), _yes_or_no(max(ratios) <= 1.0), int8])
    return table(head, rows)


def small_table(rows: list[dict[str, Any]]) -> str:
    """Formats small layers relative to nn.LSTM, with geometric means."""
    columns = [(kind, name) for kind in rows[0]["ratios"] for name in rows[0]["ratios"][kind]]
    head = ["nn.LSTM hidden", "batch", "steps", *(f"{kind}, {name}" for kind, name in columns)]
    body = [
        [
            *(str(row[name]) for name in ("hidden_size", "batch", "steps")),
            *(_number(row["ratios"][kind][name]) for kind, name in columns),
        ]
        for row in rows
    ]
    all_ratios = [[row["ratios"][kind][name] for row in rows] for kind, name in columns]
    means = ["geometric mean", "", "", *(_number(statistics.geometric_mean(ratios)) for ratios in all_ratios)]
    worst = ["worst", "", "", *(_number(max(ratios)) for ratios in all_ratios)]
    return table(head, [*body, means, worst])


def bfloat16_table(results: dict[str, dict[str, Any]]) -> str:
    """Formats times in float32 and under autocast, in milliseconds, and their ratios."""
    passes = {
        f"{shape}, {kind}": result[kind] for shape, result in results.items() for kind in ("inference", "training")
    }
    head, rows = ["shape, pass"], [[label] for label in passes]
    for name in next(iter(passes.values()))["median_seconds"]:
        head += [f"{name} float32 ms", "bfloat16 ms", "ratio", *([] if name == "nn.LSTM" else ["/ nn.LSTM bfloat16"])]
        for row, measured in zip(rows, passes.values(), strict=True):
            times = [_number(1e3 * seconds) for seconds in measured["median_seconds"][name]]
            beside = [] if name == "nn.LSTM" else [_number(measured["bfloat16 / nn.LSTM bfloat16"].get(name))]
            row += [*times, _number(measured["bfloat16 / float32"][name]), *beside]
    return table(head, rows)


def growth_table(result: dict[str, Any]) -> str:
    """Formats the time of a training step, in total and per time step, by sequence length."""
    rows = [
        [str(row["steps"]), _number(1e3 * row["median_seconds"]), _number(1e6 * row["seconds_per_step"], ".1f")]
        for row in result["rows"]
    ]
    growth = f"time per step, longest / shortest: {result['longest_to_shortest']:.2f} (linear growth: 1)"
    return table(["steps", "ms", "us per step"], rows) + "\n" + growth


def threads_table(results: dict[str, dict[str, Any]]) -> str:
    """Formats training times with one and two threads."""
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
    return table(["shape, contender", *(f"ms, threads: {count}" for count in counts), "speedup"], rows)


def memory_table(results: dict[str, dict[str, Any]]) -> str:
    """Formats the peak memory of a training step, in MiB and relative to nn.LSTM."""
    rows = [
        [f"{shape}, {name}", _number(size / 2**20, ".1f"), _number(result["ratios"].get(name))]
        for shape, result in results.items()
        for name, size in result["bytes"].items()
    ]
    return table(["shape, contender", "MiB", "/ nn.LSTM"], rows)


PHASES = {
    "forward prepare": "packing",
    "forward first": "Eq. 1",
    "forward middle": "Eq. 2",
    "forward last": "Eq. 4, 6",
    "forward rows": "pointwise",
    "backward prepare": "packing",
    "backward first": "Eq. 4, 6",
    "backward middle": "Eq. 2",
    "backward last": "Eq. 1",
    "backward rows": "pointwise",
    "backward after": "dW sparse",
    "weights": "dW dense",
    "allocation": "allocation",
    "python": "Python",
}


def phases_table(results: list[dict[str, Any]]) -> str:
    """Formats the phases of a training step: the forward pass up to the second packing, then the backward pass."""
    rows = []
    for result in results:
        seconds = result["median_seconds"]
        total = sum(seconds.values())
        shares = [_number(100 * seconds[name] / total, ".1f") for name in PHASES]
        rows.append([result["shape"]["name"], _number(result["dropout"]), _number(1e3 * total, ".1f"), *shares])
    return table(["shape", "dropout", "ms", *PHASES.values()], rows)
