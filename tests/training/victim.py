"""A process that trains the toy task and is killed at a moment chosen beforehand."""

import os
import signal
import sys
from pathlib import Path

import torch
import torch._dynamo  # every optimiser imports it, for seconds: here that is done once, before processes fork

import rru
from rru.files import atomic
from rru.settings import presets
from rru.training import Stepped, train_config
from tests.training.toy import train_in

_CODE = tuple(str(Path(rru.__file__).parent / folder) for folder in ("files", "training"))


class Death:
    """Kills its process by SIGKILL when it is called for the given time."""

    def __init__(self, moments):
        self.count, self.moments = 0, moments

    def __call__(self):
        self.count += 1
        if self.count == self.moments:
            os.kill(os.getpid(), signal.SIGKILL)
        return False


def suffer(folder, moments, pipe=None):
    """Trains, and dies by SIGKILL at the given moment; counts moments if that never comes.

    A moment is a line of code run in rru.files or rru.training, or the middle of a write.
    """
    torch.set_num_threads(1)
    moment = Death(moments)

    def trace(frame, event, argument):
        if not frame.f_code.co_filename.startswith(_CODE):
            return None
        if event == "line":
            moment()
        return trace

    def write_all(file, content):
        file.write(content[: len(content) // 2])
        file.flush()
        for _ in range(20):  # as likely as twenty lines
            moment()
        file.write(content[len(content) // 2 :])
        file.flush()

    atomic.write_all = write_all
    os.fsync = lambda descriptor: None
    sys.settrace(trace)
    train_in(folder)
    sys.settrace(None)
    if pipe is not None:
        pipe.send(moment.count)


def hold(folder, pipe):
    """Train a few steps, say so, and then wait until it is killed."""
    torch.set_num_threads(1)

    def watch(event):
        if isinstance(event, Stepped) and event.step == 5:
            pipe.send("here")
            signal.pause()

    train_in(folder, watch=watch)


def flush(folder, pipe):
    """Train a step with two threads, and tell how many of a million tiny products are not zero."""
    torch.set_num_threads(2)

    def watch(event):
        if isinstance(event, Stepped):
            pipe.send(int((torch.full((1_000_000,), 1e-30) * 1e-10).count_nonzero()))

    train_config(presets.load("bach", "rru", "smoke"), folder, watch=watch, stop=lambda: True)


def refit(config, folder, steps):
    """Train a run that trains anew on all data, and die by SIGKILL after so many steps of both."""
    torch.set_num_threads(1)
    train_config(config, folder, stop=Death(steps))
