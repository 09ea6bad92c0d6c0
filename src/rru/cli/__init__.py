"""The command `rru`. Its commands are in `rru.cli.commands`; what they need is imported only when they run."""

import atexit
import os
import sys

from rru.cli import interrupts


def main() -> None:
    """Run the command line. From start to end, Ctrl-C ends it with exit code 130 and without a traceback."""
    interrupts.end_silently()
    code = _run()
    interrupts.end_silently()
    atexit._run_exitfuncs()
    os._exit(_flushed(code))  # an orderly shutdown takes torch 0.3 s, and can crash if a module is half imported


def _run() -> int:
    """Run the command and return its exit code."""
    from rru.extras import MissingExtraError, extra

    try:
        with extra("train"):
            from rru.cli.commands import app
        app(prog_name="rru")
    except MissingExtraError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # before a command began, or after it ended
        return 130
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _flushed(code: int) -> int:
    """Write what was printed; return the exit code, which is 1 if the reader of a pipe has gone."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return 1
    return code
