"""Training: the optimiser, the folder of a run, and the loop that takes a task to its result."""

from rru.training.distributed import Processes, SeenRun, joined
from rru.training.events import Ended, Evaluated, Event, Notice, Started, Stepped, Watch
from rru.training.files import RunError
from rru.training.loop import train
from rru.training.radam import RAdam
from rru.training.result import Result
from rru.training.run import Run
from rru.training.stop import stop_on_signals
from rru.training.tensorboard import tensorboard

__all__ = [
    "Ended",
    "Evaluated",
    "Event",
    "Notice",
    "Processes",
    "RAdam",
    "Result",
    "Run",
    "RunError",
    "SeenRun",
    "Started",
    "Stepped",
    "Watch",
    "joined",
    "stop_on_signals",
    "tensorboard",
    "train",
]
