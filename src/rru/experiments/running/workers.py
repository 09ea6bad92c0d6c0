"""Run a plan in local worker processes.

Each worker is a spawned process that trains one run after another, because importing torch takes seconds. The
coordinator sends it one run at a time through a pipe and receives its events. If a worker is killed, the others
continue, and another worker resumes its run from the last checkpoint. If the coordinator dies, its workers stop after
their current step. All state is in the run folders, so running the same plan again resumes it.

A script that calls `run` must guard the call with `if __name__ == "__main__":`, since workers are spawned.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

from rru.experiments.plans import PlannedRun
from rru.experiments.running.attempt import RETRIES, attempt, record
from rru.experiments.running.events import Outcome, PlanWatch, RunLost, RunReported, RunStarted
from rru.training import Event, RunStatus, Stepped, run_folder

GLANCE = 0.2  # seconds between checks of `stop`, and between the steps that a worker reports
GRACE = 30.0  # seconds a worker has to end once it is dismissed or its coordinator is gone

_SPAWN = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork


def run(
    runs: Sequence[PlannedRun],
    root: Path,
    *,
    workers: int = 1,
    threads: int | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    watch: PlanWatch = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """Train runs of a plan in worker processes until all have ended or failed.

    **Arguments:**

    - `runs`: the runs to train, from `rru.experiments.running.to_do`.
    - `root`: the root folder of all runs.
    - `workers`: the number of processes.
    - `threads`: threads per process; None: `threads_each(workers)`.
    - `data_dir`, `device`: as for `rru.training.train_config`.
    - `watch`: called with each event of `rru.experiments.running.events`.
    - `stop`: polled; once it returns True, every worker stops after its current step.

    **Returns:** the outcomes of the runs that were started.
    """
    pool = _Pool(root, threads or threads_each(workers), data_dir, device, watch)
    waiting = deque(runs)
    try:
        while True:
            if stop():
                waiting.clear()
                pool.dismiss()
            while waiting and len(pool.at_work) < workers:
                pool.give(waiting.popleft())
            if not pool.at_work:
                break
            waiting.extendleft(pool.listen())
        pool.dismiss(join=True)
        return pool.outcomes
    finally:
        pool.kill()


def threads_each(workers: int) -> int:
    """Return torch's number of threads divided by the number of workers, at least 1."""
    return max(torch.get_num_threads() // workers, 1)


class _Worker:
    """The coordinator's handle of a worker process."""

    def __init__(self, threads: int) -> None:
        self.connection, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(theirs, threads), daemon=True)
        self.planned: PlannedRun | None = None
        resource_tracker.ensure_running()  # starting it inside the block below would unblock SIGINT
        with _ctrl_c_blocked():  # the worker inherits the mask: only the coordinator handles Ctrl-C
            self.process.start()
        theirs.close()  # so that the worker's death closes the connection

    def death(self) -> str:
        """Wait for the process to end and return how it ended, as text."""
        self.process.join()
        code = self.process.exitcode or 0
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


@contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Block SIGINT inside the `with` block. Do nothing on Windows, which has no signal masks."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Pool:
    """All workers, and the outcomes of the runs they trained."""

    def __init__(self, root: Path, threads: int, data_dir: Path | None, device: str, watch: PlanWatch) -> None:
        self.root, self.threads, self.options, self.watch = root, threads, (data_dir, device), watch
        self.workers: list[_Worker] = []
        self.losses: Counter[str] = Counter()
        self.outcomes: list[Outcome] = []
        self.dismissed = False

    @property
    def at_work(self) -> list[_Worker]:
        return [worker for worker in self.workers if worker.planned]

    def give(self, planned: PlannedRun) -> None:
        """Send a run to an idle worker, or to a new one if none is idle."""
        idle = [worker for worker in self.workers if not worker.planned]
        if not idle:
            idle.append(_Worker(self.threads))
            self.workers.append(idle[0])
        idle[0].planned = planned
        with suppress(OSError):  # the worker is dead: `listen` will see the closed connection
            idle[0].connection.send((planned, run_folder(planned.config, self.root), *self.options))
        self.watch(RunStarted(planned))

    def listen(self) -> list[PlannedRun]:
        """Handle one message from each worker that sent some, waiting up to `GLANCE` seconds for the first.

        **Returns:** the runs to try again because their worker died.
        """
        again = []
        ready = wait([worker.connection for worker in self.workers], timeout=GLANCE)
        for worker in [worker for worker in self.workers if worker.connection in ready]:
            try:
                message: Event | Outcome = worker.connection.recv()
            except (EOFError, OSError):
                self.workers.remove(worker)
                worker.connection.close()
                again += self._lost(worker.planned, worker.death())
                continue
            assert worker.planned is not None
            if isinstance(message, Outcome):
                worker.planned = None
                self._done(message)
            else:
                self.watch(RunReported(worker.planned, message))
        return again

    def _lost(self, planned: PlannedRun | None, death: str) -> list[PlannedRun]:
        if planned is None:
            return []
        self.losses[planned.id] += 1
        if self.dismissed:
            self._done(Outcome(planned, RunStatus.STOPPED, message=f"its process {death}"))
        elif self.losses[planned.id] > RETRIES:
            message = f"{self.losses[planned.id]} processes died while training it; the last one {death}"
            record(run_folder(planned.config, self.root), message)
            self._done(Outcome(planned, RunStatus.FAILED, message=message))
        else:
            self.watch(RunLost(planned, f"its process {death}"))
            return [planned]
        return []

    def _done(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.watch(outcome)

    def dismiss(self, *, join: bool = False) -> None:
        """Tell all workers to end after their current step; with `join`, wait up to `GRACE` seconds for each."""
        if not self.dismissed:
            for worker in self.workers:
                with suppress(OSError):
                    worker.connection.send(None)
        self.dismissed = True
        if join:
            for worker in self.workers:
                worker.process.join(GRACE)

    def kill(self) -> None:
        """Kill all remaining workers."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()
            worker.connection.close()
        self.workers.clear()


def _serve(connection: Connection, threads: int) -> None:
    """Train each run that a worker receives, until it is told to end."""
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
        with suppress(OSError):  # the coordinator is gone: the run stops after this step
            connection.send(event)

    with suppress(EOFError, OSError):
        while (message := connection.recv()) is not None:
            planned, folder, data_dir, device = message
            # While a run trains, the pipe only becomes readable for a request to stop or because it was closed.
            connection.send(
                attempt(planned, folder, data_dir=data_dir, device=device, watch=watch, stop=connection.poll)
            )


def _end_with_parent() -> None:
    """End a worker that is still alive `GRACE` seconds after its coordinator died. Runs can be killed safely."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    time.sleep(GRACE)
    os._exit(1)
