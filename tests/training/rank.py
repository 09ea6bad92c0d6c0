"""A process that trains together with others, as torchrun would start it."""

import os
import signal

import torch
import torch._dynamo  # every optimiser imports it, for seconds: here that is done once, before processes fork
import torch.distributed as dist

from rru.tasks import MusicTask, ReviewTask, WordTask
from rru.training import Processes, RAdam, Run, Stepped
from rru.training.loop import train
from tests.tasks import small
from tests.training.toy import CONFIG, Toy, config

TASKS = {  # batches whose halves and thirds are not equal
    "music": (lambda: MusicTask.of("music", small.music(), context=10, batch_size=5), "rru"),
    "decaying": (lambda: MusicTask.of("music", small.music(), context=10, batch_size=5), "rru"),
    "words": (lambda: text(stateful=False), "gru"),
    "stateful": (lambda: text(stateful=True), "lstm"),
    "reviews": (lambda: ReviewTask.of("reviews", small.reviews(), context=20, batch_size=7), "mogrifier"),
}
SCHEDULES = {"decaying": {"decay": "cosine", "warmup": 0.25}}


def text(stateful):
    return WordTask.of("text", small.text(train=150, valid=40, test=40), context=8, batch_size=5, stateful=stateful)


def train_task(name, folder, processes=None, watch=None, stop=lambda: False):
    """Train a small model of a task, without dropout, in double precision; the toy with dropout."""
    processes = processes or Processes()
    if name == "toy":
        task = Toy()
        model = task.model()
    else:
        make, cell = TASKS[name]
        task = make()
        model = small.model_for(task, cell)
    if processes.first and not (folder / "config.toml").exists():
        Run.create(folder, CONFIG if name == "toy" else config(epochs=2, **SCHEDULES.get(name, {})))
    processes.wait()
    optimiser = RAdam(model.parameters(), 0.01, clip=1.5)
    return train(task, model, optimiser, Run(folder), watch or (lambda event: None), stop=stop, processes=processes)


def work(rank, count, meeting, names, root, stop_at=0, die_at=0):
    """Train these tasks with the other processes; the last process asks for a stop, or is killed, at a step."""
    torch.set_num_threads(1)
    os.fsync = lambda descriptor: None
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=count)
    last, step = rank == count - 1, 0

    def watch(event):
        nonlocal step
        step = event.step if isinstance(event, Stepped) else step
        if last and step and step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def stop():
        return last and 0 < stop_at <= step

    for name in names:
        train_task(name, root / name, Processes(rank, count), watch, stop)
    dist.destroy_process_group()
