"""Training: the optimiser, and the loop that runs a task to its result."""

from rru.training.radam import RAdam

__all__ = ["RAdam"]
