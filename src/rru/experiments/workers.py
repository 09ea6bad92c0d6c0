"""Runs of a plan by processes of this machine.

Each worker is a process of its own, spawned anew, that trains one run after another: importing torch takes seconds.
The coordinator gives it one run at a time through a pipe and reads from it what happens. A worker that is killed costs
the others nothing: its run is given to a new one, which goes on from the last checkpoint. A worker whose coordinator
is gone stops after its current step. So all that matters is in the runs' folders, and the same plan run again goes on.

A script of your own that calls `run` needs the usual `if __name__ == "__main__":` around it.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

from rru.experiments import execute
from rru.experiments.plans import Entry
from rru.experiments.running import RETRIES, Began, Lost, Observer, Outcome, Told, attempt, record
from rru.training import Event, Stepped

GLANCE = 0.2  # seconds between two looks at whether to stop, and between two steps a worker tells of
GRACE = 30.0  # seconds a worker has to end by itself once its coordinator is gone

_SPAWN = multiprocessing.get_context("spawn")  # forked, torch's threads would be missing


def run(
    entries: Sequence[Entry],
    root: Path,
    *,
    workers: int = 1,
    threads: int | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    watch: Observer = lambda happening: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """Runs entries of a plan to their results.

    **Arguments:**

    - `entries`: as `rru.experiments.running.to_do` gives them.
    - `root`: the folder that runs are in.
    - `workers`: how many processes.
    - `threads`: how many each computes with; None: `threads_each(workers)`.
    - `data_dir`, `device`: as for `rru.experiments.execute.start`.
    - `watch`: is called with whatever happens.
    - `stop`: asked often; once it says True, every worker stops after its current step.

    **Returns:** what came of those that were begun.
    """
    crew = _Crew(root, threads or threads_each(workers), data_dir, device, watch)
    waiting = deque(entries)
    try:
        while True:
            if stop():
                waiting.clear()
                crew.dismiss()
            while waiting and len(crew.at_work) < workers:
                crew.give(waiting.popleft())
            if not crew.at_work:
                break
            waiting.extendleft(crew.listen())
        crew.dismiss(join=True)
        return crew.outcomes
    finally:
        crew.kill()


def threads_each(workers: int) -> int:
    """Torch's threads divided among workers, one at least."""
    return max(torch.get_num_threads() // workers, 1)


class _Worker:
    """A process that trains, seen from the coordinator."""

    def __init__(self, threads: int) -> None:
        self.connection, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(theirs, threads), daemon=True)
        self.entry: Entry | None = None
        resource_tracker.ensure_running()  # starting it later would let signals through again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # inherited: Ctrl-C is the coordinator's
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()  # so that its death ends the connection

    def dismiss(self) -> None:
        """Has it end once its step is made."""
        with suppress(OSError):
            self.connection.send(None)

    def death(self) -> str:
        """How it ended, in words; waits for that."""
        self.process.join()
        code = self.process.exitcode or 0
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


class _Crew:
    """The workers there are, and what came of what they were given."""

    def __init__(self, root: Path, threads: int, data_dir: Path | None, device: str, watch: Observer) -> None:
        self.root, self.threads, self.options, self.watch = root, threads, (data_dir, device), watch
        self.workers: list[_Worker] = []
        self.losses: Counter[str] = Counter()
        self.outcomes: list[Outcome] = []
        self.dismissed = False

    @property
    def at_work(self) -> list[_Worker]:
        return [worker for worker in self.workers if worker.entry]

    def give(self, entry: Entry) -> None:
        """Has an idle worker, or a new one, train a run."""
        idle = [worker for worker in self.workers if not worker.entry]
        if not idle:
            idle.append(_Worker(self.threads))
            self.workers.append(idle[0])
        idle[0].entry = entry
        with suppress(OSError):  # it is dead: the connection will tell
            idle[0].connection.send((entry, execute.run_folder(entry.config, self.root), *self.options))
        self.watch(Began(entry))

    def listen(self) -> list[Entry]:
        """Hears what workers have to say.

        **Returns:** the runs that lost their worker and are to be done again.
        """
        again = []
        ready = wait([worker.connection for worker in self.workers], timeout=GLANCE)
        for worker in [worker for worker in self.workers if worker.connection in ready]:
            try:
                said: Event | Outcome = worker.connection.recv()
            except (EOFError, OSError):
                self.workers.remove(worker)
                worker.connection.close()
                again += self._lost(worker.entry, worker.death())
                continue
            assert worker.entry is not None
            if isinstance(said, Outcome):
                worker.entry = None
                self._done(said)
            else:
                self.watch(Told(worker.entry, said))
        return again

    def _lost(self, entry: Entry | None, death: str) -> list[Entry]:
        if entry is None:
            return []
        self.losses[entry.id] += 1
        if self.dismissed:
            self._done(Outcome(entry, "stopped", message=f"its process {death}"))
        elif self.losses[entry.id] > RETRIES:
            message = f"{self.losses[entry.id]} processes died that trained it, the last {death}"
            record(execute.run_folder(entry.config, self.root), message)
            self._done(Outcome(entry, "failed", message=message))
        else:
            self.watch(Lost(entry, f"its process {death}"))
            return [entry]
        return []

    def _done(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.watch(outcome)

    def dismiss(self, *, join: bool = False) -> None:
        """Has all workers end."""
        if not self.dismissed:
            for worker in self.workers:
                worker.dismiss()
        self.dismissed = True
        if join:
            for worker in self.workers:
                worker.process.join(GRACE)

    def kill(self) -> None:
        """Ends whatever is left of them, at once."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()
            worker.connection.close()
        self.workers.clear()


def _serve(connection: Connection, threads: int) -> None:
    """A worker's life: a run after the other, until nothing more comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    last_step = 0.0

    def watch(event: Event) -> None:
        nonlocal last_step
        if isinstance(event, Stepped):
            if time.monotonic() - last_step < GLANCE:
                return
            last_step = time.monotonic()
        with suppress(OSError):  # nobody is there any more: the run stops after this step
            connection.send(event)

    with suppress(EOFError, OSError):
        while (given := connection.recv()) is not None:
            entry, folder, data_dir, device = given
            # While a run trains, what comes through the pipe is the wish that it stop, or the pipe's end.
            connection.send(attempt(entry, folder, data_dir=data_dir, device=device, watch=watch, stop=connection.poll))


def _end_with_parent() -> None:
    """Ends a worker whose coordinator is gone, should it not have ended by itself: runs can be killed at any moment."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    time.sleep(GRACE)
    os._exit(1)
