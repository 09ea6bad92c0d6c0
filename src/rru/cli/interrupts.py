"""What Ctrl-C does before and after a command. While torch is imported, an exception would end anywhere inside it."""

import os
import signal


def end_silently() -> None:
    """End the process at Ctrl-C, with exit code 130, unless it is ignored, as by background processes."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def interrupt() -> None:
    """Raise KeyboardInterrupt at Ctrl-C again: a command that runs may have something to finish."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os._exit(130)
