"""Run a plan on a Ray cluster.

Each run is a Ray task: Ray chooses its node, and restarts it elsewhere if its process or node dies. Nodes need not
share files with the coordinator. An actor on the coordinator's node, the keeper, is the only one to access the run
folders:

- a task asks the keeper for its run; the keeper locks the run folder and returns the files in it;
- the task trains in a temporary folder, and sends changed files to the keeper after each epoch, every minute within
  an epoch, and at the end;
- a restarted task gets the keeper's files and resumes from them. The keeper rejects files from an earlier attempt of
  the same run, which may come from a node that was wrongly presumed dead.

If the coordinator dies, Ray ends its tasks and the keeper, which releases the locks; running the same command again
resumes the plan. Every node needs this package, and the data of tasks whose data is not embedded. A file of user cells
is sent to the nodes.
"""

import logging
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from rru.experiments.plans import PlannedRun
from rru.experiments.running import transfer
from rru.experiments.running.attempt import RETRIES, attempt, busy, ended, error_text, is_busy, record
from rru.experiments.running.events import Outcome, PlanEvent, PlanWatch, RunLost, RunReported, RunStarted
from rru.extras import extra
from rru.files import FileError
from rru.settings import user_cells
from rru.training import ENDED, Evaluated, Event, Refitted, Run, RunError, RunStatus, Stepped, run_folder
from rru.training.refit import whole_status
from rru.training.run_files import ERROR, RESULT

with extra("ray"):
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

GLANCE = 0.5  # seconds between polls, and between the steps that a task reports
SENDING = 60.0  # seconds between transfers of files within an epoch


def run(
    runs: Sequence[PlannedRun],
    root: Path,
    *,
    address: str | None = None,
    threads: int = 1,
    data_dir: Path | None = None,
    watch: PlanWatch = lambda event: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """Train runs of a plan on a Ray cluster until all have ended or failed.

    Raise RunError if the cluster cannot be reached or is lost.

    **Arguments:**

    - `runs`: the runs to train, from `rru.experiments.running.to_do`.
    - `root`: the root folder of all runs, on this machine.
    - `address`: the cluster's address, as for `ray.init`; None: the cluster of this machine, or a new local one.
    - `threads`: threads per run, and CPUs that Ray reserves for it.
    - `data_dir`: the data folder on every node.
    - `watch`, `stop`: as for `rru.experiments.running.workers.run`.

    **Returns:** the outcomes of the runs that were started.
    """
    with _connected(address):
        largest = max((int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]), default=0)
        if threads > largest:
            raise ValueError(f"threads must be at most {largest}, the CPUs of the largest node; got {threads}")
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        folders = {planned.id: run_folder(planned.config, root.resolve()) for planned in runs}
        cells, data_dir = user_cells.file(), data_dir and Path(data_dir).absolute()  # nodes work in other folders
        keeper = ray.remote(Keeper).options(num_cpus=0, scheduling_strategy=here).remote(folders, cells)
        task = ray.remote(_train).options(num_cpus=threads, max_retries=RETRIES)
        tasks = {task.remote(keeper, planned, threads, data_dir, cells): planned for planned in runs}
        try:
            outcomes = _followed(tasks, keeper, watch, stop)
        except ray.exceptions.RayError as error:
            raise RunError(f"lost the cluster; run the same command again to resume: {error_text(error)}") from error
        for outcome in outcomes:
            folder = folders[outcome.run.id]
            if outcome.status == RunStatus.FAILED and not (folder / ERROR).exists():
                record(folder, outcome.message)
        return outcomes


def _followed(tasks: dict[Any, PlannedRun], keeper: Any, watch: PlanWatch, stop: Callable[[], bool]) -> list[Outcome]:
    """Wait for the tasks, report events to `watch`, and return the outcomes of those that were started."""
    outcomes: list[Outcome] = []
    begun: set[str] = set()
    stopping = False

    def tell(event: PlanEvent) -> None:
        if isinstance(event, RunStarted):
            begun.add(event.run.id)
        elif isinstance(event, Outcome):
            begun.discard(event.run.id)
            outcomes.append(event)
        watch(event)

    while tasks and not (stopping and not begun):
        if stop() and not stopping:
            stopping = True
            ray.get(keeper.stop.remote())
        done, _ = ray.wait(list(tasks), num_returns=len(tasks), timeout=GLANCE)
        for event in ray.get(keeper.news.remote()):
            tell(event)
        for reference in done:
            planned = tasks.pop(reference)
            try:
                outcome = ray.get(reference)
            except ray.exceptions.RayError as error:
                outcome = Outcome(planned, RunStatus.FAILED, message=error_text(_cause(error)))
            if outcome.status != RunStatus.STOPPED or planned.id in begun:
                tell(outcome)
    return outcomes


class Keeper:
    """The actor on the coordinator's node that reads and writes the run folders.

    **Arguments:** `folders`: the run folders by config id; `cells`: the file of user cells, if any.
    """

    def __init__(self, folders: dict[str, Path], cells: user_cells.Sent | None = None) -> None:
        if cells is not None:
            user_cells.load_sent(*cells)
        self.folders = folders
        self.attempts: dict[str, int] = {}
        self.locks: dict[str, ExitStack] = {}
        self.events: list[PlanEvent] = []
        self.stopping = False

    def begin(self, planned: PlannedRun, place: str) -> tuple[int, dict[str, bytes]] | Outcome:
        """Lock a run for a task.

        **Returns:** the number of this attempt, which the task must pass to `take` and `finish`, and the files to
        resume from; or an outcome, if the run cannot or need not be trained.
        """
        if self.stopping:
            return Outcome(planned, RunStatus.STOPPED, message="stopped before it started")
        folder = self.folders[planned.id]
        try:
            if planned.id in self.locks:
                self.events.append(RunLost(planned, "its process or node is gone"))
            else:
                run = Run.create_or_open(folder, planned.config)
                if (result := run.result()) is not None and whole_status(run, planned.config) in ENDED:
                    return ended(planned, result)
                self.locks[planned.id] = ExitStack()
                self.locks[planned.id].enter_context(run.locked())
            files = transfer.contents(folder)
        except (FileError, OSError) as error:
            self.locks.pop(planned.id, ExitStack()).close()
            failed = Outcome(planned, RunStatus.FAILED, message=error_text(error))
            return busy(planned) if is_busy(planned, folder) else failed
        self.attempts[planned.id] = self.attempts.get(planned.id, 0) + 1
        self.events.append(RunStarted(planned, place))
        begun = RESULT in files or any(name.startswith("checkpoint/") for name in files)
        return self.attempts[planned.id], files if begun else {}

    def take(self, planned: PlannedRun, number: int, event: Event | None, changes: transfer.Changes | None) -> bool:
        """Record an event of a run and write its changed files; ignore attempts that were replaced.

        **Returns:** whether the task must stop.
        """
        if self.attempts.get(planned.id) != number or planned.id not in self.locks:
            return True  # another attempt has replaced it
        if changes is not None:
            transfer.write(self.folders[planned.id], changes)
        if event is not None:
            self.events.append(RunReported(planned, event))
        return self.stopping

    def finish(self, planned: PlannedRun, number: int, changes: transfer.Changes) -> None:
        """Write the last changes and unlock the run."""
        self.take(planned, number, None, changes)
        if self.attempts.get(planned.id) == number and (lock := self.locks.pop(planned.id, None)):
            lock.close()

    def news(self) -> list[PlanEvent]:
        """Return the events since the last call."""
        news, self.events = self.events, []
        return news

    def stop(self) -> None:
        """Make each task stop the next time it reports, and keep new ones from starting."""
        self.stopping = True


def _train(
    keeper: Any, planned: PlannedRun, threads: int, data_dir: Path | None, cells: user_cells.Sent | None
) -> Outcome:
    """Train a run on the node that Ray scheduled this task on."""
    torch.set_num_threads(threads)
    if cells is not None:
        user_cells.load_sent(*cells)
    answer = _answer(keeper.begin.remote(planned, f"{ray.util.get_node_ip_address()}, process {os.getpid()}"))
    if isinstance(answer, Outcome):
        return answer
    number, files = answer
    with tempfile.TemporaryDirectory(prefix="rru-") as temporary:
        folder = Path(temporary, planned.id)
        folder.mkdir()
        transfer.write(folder, transfer.Changes(files, frozenset(files)))
        sender = transfer.Sender(folder)
        stopping, reported, sent = False, 0.0, time.monotonic()

        def watch(event: Event) -> None:
            nonlocal stopping, reported, sent
            now = time.monotonic()
            sends = isinstance(event, Evaluated | Refitted) or now - sent > SENDING
            if isinstance(event, Stepped) and not sends and now - reported < GLANCE:
                return
            reported, sent = now, now if sends else sent
            stopping = _answer(keeper.take.remote(planned, number, event, sender.changes() if sends else None))

        outcome = attempt(planned, folder, data_dir=data_dir, watch=watch, stop=lambda: stopping)
        _answer(keeper.finish.remote(planned, number, sender.changes()))
    return outcome


def _answer(reference: Any) -> Any:
    """Wait for the keeper's answer in another thread: if a task's own thread waits, Ray lends its CPU to others."""
    with ThreadPoolExecutor(1) as threads:
        try:
            return threads.submit(ray.get, reference).result()
        except ray.exceptions.RayError as error:
            raise _cause(error) from error


def _cause(error: Exception) -> Exception:
    """Return the exception raised in a task or in the keeper, without Ray's wrapper."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """Connect to the cluster inside the `with` block; keep an existing connection."""
    if ray.is_initialized():
        yield
        return
    _check(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # do not send usage statistics
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        with suppress(ValueError):  # only the main thread may set handlers
            signal.signal(signal.SIGTERM, before)  # Ray installs its own
        yield
    finally:
        ray.shutdown()


def _check(address: str | None) -> None:
    """Raise at once if the address is malformed or cannot be reached; Ray would retry for minutes."""
    if address is None or address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if not port.isdigit() or not host or "/" in host:
        raise ValueError(
            f"address must be HOST:PORT of a cluster this machine belongs to, as `ray start` prints it; got {address!r}"
        )
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"no Ray cluster can be reached at {address}: {error}") from error
