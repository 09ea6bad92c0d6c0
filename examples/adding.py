"""The adding problem (Hochreiter and Schmidhuber, 1997): train an RRU and an LSTM with equal parameters.

Each sequence has random numbers in [0, 1], two of them marked. The target is the sum of the two marked numbers, so the
network must remember the first one for dozens of steps. Always predicting 1 gives a mean squared error of 1/6.
"""

import argparse
import time

import torch
from torch import Tensor, nn

import rru

BASELINE = 1 / 6  # mean squared error of always predicting 1
LEARNED = BASELINE / 10
CELLS = ("rru", "lstm")


def make_batch(size: int, steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return inputs (T, B, 2), each a number and its mark, and targets (B,)."""
    numbers = torch.rand(steps, size, generator=generator)
    marks = torch.zeros(steps, size)
    for low, high in ((0, steps // 2), (steps // 2, steps)):  # one mark in each half
        marks[torch.randint(low, high, (size,), generator=generator), torch.arange(size)] = 1
    return torch.stack([numbers, marks], dim=-1), (numbers * marks).sum(0)


class Adder(nn.Module):
    """Predicts one number from a sequence."""

    def __init__(self, cell: str, hidden_size: int) -> None:
        super().__init__()
        self.layer = rru.layer_class(cell)(2, hidden_size)
        self.head = nn.Linear(hidden_size, 1)

    def forward(self, x: Tensor) -> Tensor:
        outputs, _ = self.layer(x)  # (T, B, n)
        return self.head(outputs[-1]).squeeze(-1)  # (B,)


def main() -> None:
    """Train both networks and print their test errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=50, help="numbers per sequence")
    parser.add_argument("--steps", type=int, default=500, help="training steps")
    parser.add_argument("--parameters", type=int, default=10_000, help="maximum number of parameters of each network")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # faster for such small networks
    if options.length < 2:
        parser.error(f"--length must be at least 2, got {options.length}")

    adders, optimizers, seconds = {}, {}, dict.fromkeys(CELLS, 0.0)
    for cell in CELLS:
        torch.manual_seed(options.seed)
        hidden_size = rru.hidden_size_for(options.parameters, lambda n, cell=cell: Adder(cell, n))
        adders[cell] = Adder(cell, hidden_size)
        optimizers[cell] = torch.optim.Adam(adders[cell].parameters(), lr=options.learning_rate)
    generator = torch.Generator().manual_seed(options.seed + 1)
    test_inputs, test_targets = make_batch(1000, options.length, generator)

    def test_error(cell: str) -> float:
        with torch.no_grad():
            return nn.functional.mse_loss(adders[cell](test_inputs), test_targets).item()

    sizes = ", ".join(f"{cell.upper()} {rru.count_parameters(adders[cell]):,}" for cell in CELLS)
    print(f"Adding two of {options.length} numbers. Parameters: {sizes}. Always predicting 1: error {BASELINE:.3f}.\n")
    print("step   " + "".join(f"{cell.upper():<30}" for cell in CELLS))
    for step in range(1, options.steps + 1):
        inputs, targets = make_batch(50, options.length, generator)
        for cell in CELLS:
            start = time.perf_counter()
            loss = nn.functional.mse_loss(adders[cell](inputs), targets)
            optimizers[cell].zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(adders[cell].parameters(), 1.0)
            optimizers[cell].step()
            seconds[cell] += time.perf_counter() - start
        if step % 50 == 0 or step == options.steps:
            print(f"{step:5d}  " + "".join(f"{bar(test_error(cell)):<30}" for cell in CELLS), flush=True)

    print()
    for cell in CELLS:
        error = test_error(cell)
        verdict = "learned it" if error < LEARNED else "has not learned it yet"
        print(
            f"{cell.upper():4} {verdict}: error {error:.4f} on 1,000 new sequences, trained in {seconds[cell]:.0f} s."
        )
    print("One seed, one learning rate: try others with --seed, --learning-rate, --steps, --length.")


def bar(error: float) -> str:
    """Format an error with a bar, which is full at the error of the baseline."""
    return f"{error:.4f} " + "█" * round(20 * min(error / BASELINE, 1))


if __name__ == "__main__":
    main()
