"""The command `rru`. Its commands are in `rru.cli.commands`, which is imported only when the command runs."""

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
        os._exit(130)
