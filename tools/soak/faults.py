"""Faults for the soak: a small disk that fills up, damaged files, and clocks that are wrong or jump. Linux."""

import ctypes
import errno
import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rru.files import Lock
from rru.training import Run, RunStatus, find_runs

DISK = 48 << 20  # bytes of the file system that the disturbed runs are on
SHIFT = "RRU_SOAK_SHIFT"  # environment variable: seconds to add to the clock of processes started from now on


def shift_clock(seconds: float) -> None:
    """Shift the clock of this process, and of those it starts from now on."""
    ctypes.c_double.in_dll(ctypes.CDLL(None), "soak_shift").value = seconds
    os.environ[SHIFT] = str(seconds)


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a small file system at a folder. Yield whether it could: mounting needs the rights of root."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(folder)]
    mounted = subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, free: int) -> int:
    """Fill a file system except for some bytes. Return how many bytes it took; `empty` gives them back."""
    taken = 0
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            taken += file.write(bytes(64 << 10)) or 0
    os.truncate(disk / "filler", max(taken - free, 0))
    return taken


def empty(disk: Path) -> None:
    """Remove what `fill` wrote."""
    with suppress(FileNotFoundError):
        (disk / "filler").unlink()


def runs_in(root: Path) -> list[Run]:
    """Return the runs of a round."""
    return find_runs(root / "runs", lambda folder, error: None)


def damage(root: Path, draw: random.Random) -> str:
    """Damage something that a run can be told to recover from. Return what it did; empty if there was nothing."""
    runs = []
    for run in runs_in(root):
        with suppress(Exception):  # its result may be damaged already
            if run.status != RunStatus.RUNNING:
                runs.append(run)
    if not runs:
        return ""
    kinds = ("metrics", "environment", "checkpoint", "dates", "junk", "result", "unfinished", "pipe", "journal")
    what = draw.choice(kinds)
    try:
        return f"damage, {what}" if _damaged(what, root, draw.choice(runs), draw) else ""
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return ""
        raise


def _damaged(what: str, root: Path, run: Run, draw: random.Random) -> bool:
    """Do one kind of damage. Return whether there was something to damage."""
    if what == "metrics":
        return _append(run.path / "metrics.jsonl", draw.choice((b"\0\0\0\n", b"{junk\n", b'{"kind"')))
    if what == "journal":  # as a process that was killed while it wrote a line
        return _tear(sorted((root / "runs").glob("*/*/studies/*/study.journal")))
    if what == "environment":
        (run.path / "env.json").write_bytes(draw.randbytes(40))
    elif what == "checkpoint":
        checkpoints = sorted((run.path / "checkpoint").glob("[0-9]*"))
        if len(checkpoints) < 2:
            return False
        victim = draw.choice(sorted(checkpoints[-1].iterdir()))
        os.truncate(victim, victim.stat().st_size // 2)
    elif what == "dates":
        for path in run.path.iterdir():
            os.utime(path, (moment := draw.choice((0, 2**33, 1e9)), moment))
    elif what == "junk":
        folder = root / "runs" / f"junk-{draw.getrandbits(32)}\x1b[2J"
        folder.mkdir()
        (folder / "config.toml").write_bytes(draw.randbytes(100))
        (folder / "elsewhere").symlink_to(draw.choice(("/", "..", "nowhere")))
    elif what == "result":
        if not (run.path / "result.json").exists():
            return False
        (run.path / "result.json").write_bytes(draw.choice((b"", b"[]", b'{"status": 5}')))
    elif what == "pipe":
        folder = Path(tempfile.mkdtemp(dir=root / "runs"))
        os.mkfifo(folder / draw.choice(("config.toml", "config.json", "manifest.json")))
    else:
        (run.path / ".unfinished-00-x").mkdir(exist_ok=True)
    return True


def _tear(journals: list[Path]) -> bool:
    for journal in journals:
        with Lock(journal.with_name(f"{journal.name}.lock"), timeout=None):
            _append(journal, b'{"op_code')
    return bool(journals)


def _append(path: Path, content: bytes) -> bool:
    if not path.exists():
        return False
    with path.open("ab") as file:
        file.write(content)
    return True
