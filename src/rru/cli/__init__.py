"""The command `rru`. Its commands are in `rru.cli.commands`, which is imported only when the command runs."""

import atexit
import os
import signal
import sys

from rru.extras import MissingExtraError, extra


def main() -> None:
    """Run the command line. Ctrl-C ends it silently, with exit code 130, while torch is still being imported."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # do not replace it if a background process ignores the signal
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        with extra("train"):
            from rru.cli.commands import app
    except MissingExtraError as error:
        sys.exit(f"error: {error}")
    try:
        signal.signal(signal.SIGINT, before)
        app(prog_name="rru")
    except KeyboardInterrupt:  # before a command began, or after it ended
        _end_at_once()
    except SystemExit as ended:
        if ended.code == 130:
            _end_at_once()
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # silent while Python shuts down
        raise


def _end_at_once() -> None:
    """End after Ctrl-C. A module may be half imported, and then an orderly shutdown can crash."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(130)
