"""Limit the memory and time of refusing a hostile file, in a forked process."""

import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEMORY = 300 << 20  # bytes above those of the process before
SECONDS = 6  # of processor time: three times what is promised, for slow machines
TIMEOUT = 60  # after so many it is killed


def refused(action: Callable[[], Any], *errors: type[Exception], seconds: float = SECONDS) -> str:
    """Run an action that must raise one of the errors, with little memory and time. Return its message."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, pickle.dumps(_measure(action, errors)))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    assert content, f"the process was killed, for lack of memory or after {TIMEOUT} s of processor time"
    message, memory, spent = pickle.loads(content)
    assert isinstance(message, str), f"it was not refused: {message}"
    assert memory < MEMORY, f"refusing took {memory >> 20} MiB: {message}"
    assert spent < seconds, f"refusing took {spent:.1f} s of processor time: {message}"
    return message


def _measure(action: Callable[[], Any], errors: tuple[type[Exception], ...]) -> tuple[Any, int, float]:
    import resource  # not on Windows

    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _peak()
    resource.setrlimit(resource.RLIMIT_CPU, (TIMEOUT, TIMEOUT))
    message: Any = ("returned",)
    began = time.process_time()
    try:
        action()
    except errors as error:
        message = str(error)
    except BaseException as error:  # reported by the parent
        message = (repr(error)[:500],)
    return message, _peak() - before, time.process_time() - began


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10
