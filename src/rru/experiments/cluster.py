"""Runs of a plan on a Ray cluster.

Each run is a Ray task: Ray chooses its node, and begins it again elsewhere when its process or node dies. Nodes share
no files with the coordinator. One actor, the keeper, lives on the coordinator's own node and alone touches the runs'
folders:

- a task that begins asks the keeper for the run; the keeper locks the run's folder and gives what is in it;
- the task trains in a temporary folder, and sends what has changed in it to the keeper after each epoch, each minute
  within it, and at its end;
- a task that Ray begins again gets what the keeper has, and goes on from there. What an earlier attempt of the same
  run may still send, from a node that was only thought dead, is refused.

When the coordinator dies, Ray ends its tasks and the keeper, and with it the locks; the same command goes on. Every
node needs this package installed, and the data of tasks that are not embedded; a file of the user's own cells is sent.
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

from rru.experiments import execute, own, transfer
from rru.experiments.plans import Entry
from rru.experiments.running import (
    ERROR,
    RETRIES,
    Began,
    Happening,
    Lost,
    Observer,
    Outcome,
    Told,
    attempt,
    busy,
    ended,
    error_text,
    is_busy,
    record,
)
from rru.training import Evaluated, Event, Result, RunError, Stepped

try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    raise RunError("running on a cluster needs Ray, which is not installed: pip install 'rru[ray]'") from error

GLANCE = 0.5  # seconds between two looks at what happens
SENDING = 60.0  # seconds after which files are sent within an epoch


def run(
    entries: Sequence[Entry],
    root: Path,
    *,
    address: str | None = None,
    threads: int = 1,
    data_dir: Path | None = None,
    watch: Observer = lambda happening: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """Runs entries of a plan to their results, on a Ray cluster.

    **Arguments:**

    - `entries`: as `rru.experiments.running.to_do` gives them.
    - `root`: the folder that runs are in, on this machine.
    - `address`: the cluster's, as for `ray.init`; None: the one this machine belongs to, or a new one of this machine.
    - `threads`: how many each run computes with, and as many CPUs it takes.
    - `data_dir`: the data folder on every node.
    - `watch`, `stop`: as for `rru.experiments.workers.run`.

    **Returns:** what came of those that were begun.
    """
    with _connected(address):
        largest = max((int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]), default=0)
        if threads > largest:
            raise ValueError(f"threads must be at most {largest}, the most CPUs of a node there is; got {threads}")
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        folders = {entry.id: execute.run_folder(entry.config, root.resolve()) for entry in entries}
        cells = own.file()
        keeper = ray.remote(Keeper).options(num_cpus=0, scheduling_strategy=here).remote(folders, cells)
        task = ray.remote(_train).options(num_cpus=threads, max_retries=RETRIES)
        tasks = {task.remote(keeper, entry, threads, data_dir, cells): entry for entry in entries}
        try:
            outcomes = _followed(tasks, keeper, watch, stop)
        except ray.exceptions.RayError as error:
            raise RunError(f"the cluster is lost, the same command goes on: {error_text(error)}") from error
        for outcome in outcomes:
            folder = folders[outcome.entry.id]
            if outcome.status == "failed" and not (folder / ERROR).exists():
                record(folder, outcome.message)
        return outcomes


def _followed(tasks: dict[Any, Entry], keeper: Any, watch: Observer, stop: Callable[[], bool]) -> list[Outcome]:
    """What came of tasks that began; tells of what happens meanwhile."""
    outcomes: list[Outcome] = []
    begun: set[str] = set()
    asked = False

    def tell(happening: Happening) -> None:
        if isinstance(happening, Began):
            begun.add(happening.entry.id)
        elif isinstance(happening, Outcome):
            begun.discard(happening.entry.id)
            outcomes.append(happening)
        watch(happening)

    while tasks and not (asked and not begun):
        if stop() and not asked:
            asked = True
            ray.get(keeper.stop.remote())
        done, _ = ray.wait(list(tasks), num_returns=len(tasks), timeout=GLANCE)
        for happening in ray.get(keeper.news.remote()):
            tell(happening)
        for reference in done:
            entry = tasks.pop(reference)
            try:
                outcome = ray.get(reference)
            except ray.exceptions.RayError as error:
                outcome = Outcome(entry, "failed", message=error_text(_cause(error)))
            if outcome.status != "stopped" or entry.id in begun:
                tell(outcome)
    return outcomes


class Keeper:
    """The one who reads and writes runs' folders; an actor on the coordinator's node.

    **Arguments:** `folders`: the runs', by id; `cells`: the file of the user's own cells, if there is one.
    """

    def __init__(self, folders: dict[str, Path], cells: own.Sent | None = None) -> None:
        if cells is not None:
            own.load_sent(*cells)
        self.folders = folders
        self.attempts: dict[str, int] = {}
        self.locks: dict[str, ExitStack] = {}
        self.happenings: list[Happening] = []
        self.stopping = False

    def begin(self, entry: Entry, place: str) -> tuple[int, dict[str, bytes]] | Outcome:
        """Gives a run to a task.

        **Returns:** the number of this attempt, which whatever is sent must bear, and the files to go on from; or the
        outcome, if there is nothing to do.
        """
        if self.stopping:
            return Outcome(entry, "stopped", message="stopped before it began")
        folder = self.folders[entry.id]
        try:
            if entry.id in self.locks:
                self.happenings.append(Lost(entry, "its process or node is gone"))
            else:
                run = execute.opened(folder, entry.config)
                if (content := run.result()) is not None:
                    return ended(entry, Result.from_json(content))
                self.locks[entry.id] = ExitStack()
                self.locks[entry.id].enter_context(run.locked())
            files = transfer.contents(folder)
        except (RunError, OSError) as error:
            self.locks.pop(entry.id, ExitStack()).close()
            return busy(entry) if is_busy(folder) else Outcome(entry, "failed", message=error_text(error))
        self.attempts[entry.id] = self.attempts.get(entry.id, 0) + 1
        self.happenings.append(Began(entry, place))
        begun = any(name.startswith("checkpoint/") for name in files)
        return self.attempts[entry.id], files if begun else {}

    def take(self, entry: Entry, number: int, event: Event | None, changes: transfer.Changes | None) -> bool:
        """Hears of a run, and writes what has changed in its folder.

        **Returns:** whether it is to stop.
        """
        if self.attempts.get(entry.id) != number or entry.id not in self.locks:
            return True  # another attempt has taken its place
        if changes is not None:
            transfer.write(self.folders[entry.id], changes)
        if event is not None:
            self.happenings.append(Told(entry, event))
        return self.stopping

    def finish(self, entry: Entry, number: int, changes: transfer.Changes) -> None:
        """Writes what has changed last, and lets go of the run."""
        self.take(entry, number, None, changes)
        if self.attempts.get(entry.id) == number and (lock := self.locks.pop(entry.id, None)):
            lock.close()

    def news(self) -> list[Happening]:
        """What has happened since last time."""
        news, self.happenings = self.happenings, []
        return news

    def stop(self) -> None:
        """Has every run stop after its current step, and none begin."""
        self.stopping = True


def _train(keeper: Any, entry: Entry, threads: int, data_dir: Path | None, cells: own.Sent | None) -> Outcome:
    """A task: trains a run on whatever node this is."""
    torch.set_num_threads(threads)
    if cells is not None:
        own.load_sent(*cells)
    given = _asked(keeper.begin.remote(entry, f"{ray.util.get_node_ip_address()}, process {os.getpid()}"))
    if isinstance(given, Outcome):
        return given
    number, files = given
    with tempfile.TemporaryDirectory(prefix="rru-") as temporary:
        folder = Path(temporary, entry.id)
        folder.mkdir()
        transfer.write(folder, transfer.Changes(files, frozenset(files)))
        sender = transfer.Sender(folder)
        asked, heard, sent = False, 0.0, time.monotonic()

        def watch(event: Event) -> None:
            nonlocal asked, heard, sent
            now = time.monotonic()
            sends = isinstance(event, Evaluated) or now - sent > SENDING
            if isinstance(event, Stepped) and not sends and now - heard < GLANCE:
                return
            heard, sent = now, now if sends else sent
            asked = _asked(keeper.take.remote(entry, number, event, sender.changes() if sends else None))

        outcome = attempt(entry, folder, data_dir=data_dir, watch=watch, stop=lambda: asked)
        _asked(keeper.finish.remote(entry, number, sender.changes()))
    return outcome


def _asked(reference: Any) -> Any:
    """An answer of the keeper, waited for in a thread: a task that waits in its own lends its CPU to another task."""
    with ThreadPoolExecutor(1) as threads:
        try:
            return threads.submit(ray.get, reference).result()
        except ray.exceptions.RayError as error:
            raise _cause(error) from error


def _cause(error: Exception) -> Exception:
    """What went wrong in a task or in the keeper, without Ray's account of where."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """While this lasts there is a connection to the cluster."""
    if ray.is_initialized():
        yield
        return
    _check(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what is run here is nobody's business
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        with suppress(ValueError):  # only the main thread may
            signal.signal(signal.SIGTERM, before)  # Ray puts its own in place
        yield
    finally:
        ray.shutdown()


def _check(address: str | None) -> None:
    """Says at once what is wrong with an address; Ray would try for minutes."""
    if address is None or address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if not port.isdigit() or not host or "/" in host:
        raise ValueError(
            f"address must be HOST:PORT of a cluster this machine belongs to, as `ray start` says it; got {address!r}"
        )
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"no Ray cluster can be reached at {address}: {error}") from error
