"""A process that trains the toy task and is killed at a moment chosen beforehand."""

import os
import signal
import sys
from pathlib import Path

import torch
import torch._dynamo  # every optimiser imports it, for seconds: here that is done once, before processes fork

from rru.training import files
from rru.training.events import Stepped
from tests.training.toy import train_in

_CODE = str(Path(files.__file__).parent)


def suffer(folder, moments, pipe=None):
    """Trains, and dies by SIGKILL at the given moment; counts moments if that never comes.

    A moment is a line of code run in rru.training, or the middle of a write.
    """
    torch.set_num_threads(1)
    count = 0

    def moment():
        nonlocal count
        count += 1
        if count == moments:
            os.kill(os.getpid(), signal.SIGKILL)

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

    files.write_all = write_all
    os.fsync = lambda descriptor: None
    sys.settrace(trace)
    train_in(folder)
    sys.settrace(None)
    if pipe is not None:
        pipe.send(count)


def hold(folder, pipe):
    """Trains a few steps, says so, and then waits until it is killed."""
    torch.set_num_threads(1)

    def watch(event):
        if isinstance(event, Stepped) and event.step == 5:
            pipe.send("here")
            signal.pause()

    train_in(folder, watch=watch)
