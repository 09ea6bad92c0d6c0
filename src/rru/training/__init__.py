"""Training: the optimiser, the run folder, and the training loop."""

from rru.training.distributed import Processes, joined
from rru.training.errors import RunError
from rru.training.events import Ended, Evaluated, Event, Notice, Refitted, Started, Stepped, Watch
from rru.training.folder import Run
from rru.training.from_config import assemble, evaluate, train_config
from rru.training.locate import find_runs, named_run, run_folder
from rru.training.loop import train
from rru.training.precision import with_precision
from rru.training.radam import RAdam
from rru.training.result import Result
from rru.training.status import ENDED, RunStatus
from rru.training.stop import stop_on_signals, stopped_within
from rru.training.tensorboard import tensorboard

__all__ = [
    "ENDED",
    "Ended",
    "Evaluated",
    "Event",
    "Notice",
    "Processes",
    "RAdam",
    "Refitted",
    "Result",
    "Run",
    "RunError",
    "RunStatus",
    "Started",
    "Stepped",
    "Watch",
    "assemble",
    "evaluate",
    "find_runs",
    "joined",
    "named_run",
    "run_folder",
    "stop_on_signals",
    "stopped_within",
    "tensorboard",
    "train",
    "train_config",
    "with_precision",
]
