"""Run commands at random, kill and disturb them, and compare all results with undisturbed ones. Linux.

Starts training, resuming, plans, searches, reports, lists and streams in random mixtures, several at a time, on tiny
models. It kills or interrupts processes, fills a small disk, limits the size of files, damages files and shifts
clocks. After each round, of a few minutes, it finishes every run and compares results, metrics and weights bit by bit
with runs that nothing disturbed; then it begins again in an empty folder.

    python tools/soak --minutes 60
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PLACE = "RRU_SOAK_FOLDER"


def main() -> int:
    """Read the arguments and soak, in a process whose clock can be shifted. Return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**9) if given.seed is None else given.seed
    if PLACE not in os.environ:
        _start_again(seed)
    place = os.environ[PLACE]
    try:
        from rounds import soak  # imports torch

        return soak(given.minutes, seed, Path(place))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _start_again(seed: int) -> None:
    """Replace this process by one that preloads a library to shift its clock with."""
    place = tempfile.mkdtemp(prefix="rru-soak-")
    here, library = Path(__file__).parent, f"{place}/clock.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", str(here / "clock.c"), "-o", library, "-ldl"], check=True)
    print(f"seed {seed}", flush=True)
    arguments = [sys.executable, str(here), *sys.argv[1:], "--seed", str(seed)]
    os.execve(sys.executable, arguments, os.environ | {PLACE: place, "LD_PRELOAD": library})


if __name__ == "__main__":
    sys.exit(main())
