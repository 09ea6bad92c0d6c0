"""A terminal for tests: runs a command in one, and says what is on the screen afterwards."""

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from pathlib import Path

import rru
from tests.timeouts import TIMEOUT


class Terminal:
    """A command in a terminal of its own.

    **Arguments:** `arguments` of `rru`; `folder` to run in; `width` and `height` in characters.
    """

    def __init__(self, *arguments, folder, width=80, height=24):
        self.text, self.width = "", width
        self.pid, self.descriptor = pty.fork()
        if not self.pid:  # the child
            os.chdir(folder)
            os.environ |= {"PYTHONPATH": str(Path(rru.__file__).parents[1]), "TERM": "xterm"}
            for name in ("COLUMNS", "LINES"):
                os.environ.pop(name, None)
            os.execv(sys.executable, [sys.executable, "-m", "rru", *arguments])
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def read_until(self, pattern):
        """Read until a pattern was printed; without one, until the end."""
        end = time.monotonic() + TIMEOUT
        while pattern is None or not re.search(pattern, self.text):
            ready, _, _ = select.select([self.descriptor], [], [], max(end - time.monotonic(), 0))
            assert ready, f"nothing more was printed:\n{self.text[-2000:]}"
            try:
                read = os.read(self.descriptor, 1 << 16)
            except OSError:  # the other side is closed
                read = b""
            if not read:
                assert pattern is None, f"never printed {pattern}:\n{self.text[-2000:]}"
                return
            self.text += read.decode(errors="replace")

    def type(self, keys):
        """Press some keys."""
        os.write(self.descriptor, keys.encode())

    def end(self):
        """Wait for the command; its exit code."""
        self.read_until(None)
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    @property
    def screen(self):
        """The lines on the screen now."""
        return screen(self.text, self.width)


def screen(text, width):
    """What a terminal of some width shows of a text with control sequences, as far as rich uses them."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|[^\x1b]", text):
        if part == "\n":
            row, column = row + 1, 0
        elif part == "\r":
            column = 0
        elif part.startswith("\x1b"):
            count = int(re.sub(r"\D", "", part) or 1)
            row -= count if part.endswith("A") else 0
            if part.endswith("K"):
                lines[row] = ""
        else:
            if column == width:
                row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
            lines[row] = lines[row].ljust(column)[:column] + part + lines[row][column + 1 :]
            column += 1
        lines += [""] * (row + 1 - len(lines))
    return [line.rstrip() for line in lines]
