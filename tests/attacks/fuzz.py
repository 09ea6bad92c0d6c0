"""Fuzz every reader and the native scans for some minutes: `python -m tests.attacks.fuzz --minutes 5`.

Minutes are of processor time, so that a busy machine tries as much. Each case is made from a number, its seed, and runs
in a child process, so that a crash is counted and named. Ctrl-C or SIGTERM prints the counts so far.
"""

import argparse
import faulthandler
import math
import multiprocessing
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ROUND = 20.0  # seconds of processor time of a child process
PATIENCE = 600.0  # seconds by the clock that a case may take: a machine may be busy
FUZZERS = (
    *("data", "own data", "run folder", "forged run", "used model", "weights"),
    *("study", "midi", "export", "layer", "library"),
)


def fuzz(
    name: str,
    seed: int,
    *,
    cases: float = math.inf,
    seconds: float = math.inf,
    begin: Callable[[int], None] = lambda seed: None,
) -> Counter[str]:
    """Run a number of cases of one kind, or for some processor time. Return how many were read or refused.

    `begin` is called with the seed of each case before it runs.
    """
    from tests.attacks import fuzzers  # imports torch

    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        run = fuzzers.make(name, Path(folder))
        end = time.process_time() + seconds
        while not counts or (counts.total() < cases and time.process_time() < end):
            seed += 1
            begin(seed)
            try:
                counts[run(random.Random(seed))] += 1
            except BaseException:
                print(f"FAILED: {name}, seed {seed}", file=sys.stderr, flush=True)
                raise
    return counts


def _child(name: str, seconds: float, seed: int, pipe, current) -> None:
    def begin(seed: int) -> None:
        current.value = seed
        faulthandler.dump_traceback_later(PATIENCE, exit=True)  # shows where a case hangs

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pipe.send(fuzz(name, seed, seconds=seconds, begin=begin))


def _spent() -> float:
    """Return the processor time of the child processes that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Fuzz in turn until the time is over, then print counts. Return 1 if anything failed or crashed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="of processor time")
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--only", choices=FUZZERS, action="append")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**9) if given.seed is None else given.seed
    counts: Counter[str] = Counter()
    failures = []
    from tests.attacks import fuzzers  # noqa: F401 (forked processes need not import torch again)

    context, number = multiprocessing.get_context("fork"), 0
    current = context.Value("q", 0, lock=False)  # the seed of the case that runs
    names = given.only or FUZZERS
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        while (left := 60 * given.minutes - _spent()) > 0 and len(failures) < 10:
            name = names[number % len(names)]
            number += 1
            ours, theirs = context.Pipe()
            arguments = (name, min(ROUND, max(left, 1.0)), seed + number * 10**6, theirs, current)
            child = context.Process(target=_child, args=arguments, daemon=True)
            child.start()
            theirs.close()
            try:
                counts.update(found := ours.recv())
                print(f"round {number}: {name}, {sum(found.values()):,} cases", flush=True)
            except EOFError:
                child.join()
                failures.append(f"{name}, seed {current.value}: exit code {child.exitcode}")
                print(f"FAILED: {failures[-1]}", flush=True)
            child.join()
    for reader, count in sorted(counts.items()):
        print(f"{reader:<40}{count:>10,}")
    print(f"{'all':<40}{sum(counts.values()):>10,} in {_spent():.0f} s of processor time; {len(failures)} failures")
    for failure in failures:
        print(f"FAILED: {failure}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
