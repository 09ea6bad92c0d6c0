"""The shapes of the benchmark: six of the paper, and more that people train."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Shape:
    """Size of a layer and of its inputs, (T, B, m) with T = `steps` and B = `batch`."""

    name: str
    batch: int
    steps: int
    input_size: int  # m
    output_size: int  # p, for the RRU only; the other layers output their state
    expansion: float  # q
    relu_layers: int
    parameters: int  # maximum for the layer
    mogrifier_rank: int = 40

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.batch} x {self.steps} steps, {self.input_size} -> {self.output_size}, "
            f"expansion {self.expansion:g}, {self.relu_layers} ReLU layer{'s' * (self.relu_layers > 1)}, "
            f"{self.parameters:,} parameters"
        )

    def tiny(self) -> "Shape":
        """Return a version that runs in milliseconds."""
        return replace(
            self,
            batch=2,
            steps=4,
            input_size=min(self.input_size, 4),
            output_size=4,
            parameters=3_000,
            mogrifier_rank=4,
        )


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("jsb", 16, 128, 88, 64, 1.77, 1, 6_900_000),
        Shape("nottingham", 16, 200, 88, 64, 7.32, 1, 2_600_000),
        Shape("word-ptb", 128, 64, 64, 128, 2.0, 1, 5_000_000),
        Shape("char-ptb", 64, 128, 16, 128, 4.0, 2, 12_000_000),
        Shape("imdb", 64, 128, 64, 64, 2.0, 1, 9_700_000),
        Shape("mnist", 64, 784, 1, 64, 2.0, 1, 35_000),
    )
}

MORE_SHAPES = {  # only measured if named, or by --phases
    shape.name: shape
    for shape in (
        Shape("word-ptb-wide", 128, 64, 64, 128, 6.87, 1, 5_000_000),  # the paper's tuned expansions
        Shape("musedata-wide", 16, 200, 88, 64, 6.86, 1, 6_900_000),
        Shape("piano-midi-wide", 16, 200, 88, 64, 3.68, 1, 2_600_000),
        Shape("hidden-32", 32, 20, 32, 32, 2.0, 1, 8_500),
        Shape("hidden-128", 8, 100, 128, 128, 2.0, 1, 133_000),
    )
}
