"""Ending cleanly on Ctrl-C."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], bool]]:
    """Has the first Ctrl-C (or SIGTERM) ask for a stop, and the second interrupt at once. For the main thread.

    ```python
    with stop_on_signals() as stop:
        train(task, model, optimiser, config, run, stop=stop)
    ```
    """
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        for each, handler in before.items():
            signal.signal(each, handler)

    before = {each: signal.signal(each, ask) for each in _SIGNALS}
    try:
        yield lambda: asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
