"""Stop cleanly on Ctrl-C or SIGTERM."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def stopped_within(seconds: float, stop: Callable[[], bool]) -> bool:
    """Wait up to `seconds`, polling `stop`. Return True as soon as `stop()` does, False after `seconds`."""
    end = time.monotonic() + seconds
    while not stop():
        remaining = end - time.monotonic()
        if remaining <= 0:
            return False
        time.sleep(min(remaining, 0.1))
    return True


@contextmanager
def stop_on_signals(tell: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl-C or SIGTERM request a stop and the second interrupt at once. Main thread only.

    **Arguments:** `tell`: called once when a stop is requested, to say so: a step or a validation may take a while.

    **Returns:** a function that returns whether a stop was requested.

    ```python
    with stop_on_signals() as stop:
        train(task, model, optimiser, run, stop=stop)
    ```
    """
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        for each, handler in before.items():
            signal.signal(each, handler)
        threading.Thread(target=tell).start()  # a handler must not print: it may have interrupted a print

    before = {each: signal.signal(each, ask) for each in _SIGNALS}
    try:
        yield lambda: asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
