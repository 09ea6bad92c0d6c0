"""The commands that the soak runs, each in a process of its own, and what may befall it."""

import fcntl
import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

import faults
import torch

import rru
from rru.cli.commands import app

CELLS, SEEDS = ("rru", "gru", "lstm", "mogrifier"), range(5)
FREQUENT = ["--set", "checkpoint_steps=1", "--set", "log_steps=1"]  # many writes to disturb; these change no result
SEARCH = ["tune", "bach", "--preset", "smoke", "--trials", "4", "--seed", "3", "--threads", "1"]
PLAN = ["table1", "--preset", "smoke", "--tasks", "bach", "--cells", "rru,gru", "--seeds", "0-1"]
SIGNALS = {
    "kill": signal.SIGKILL,
    "interrupt": signal.SIGINT,
    "terminate": signal.SIGTERM,
    "kill one process": signal.SIGKILL,
}
FAULTS = ("", "kill", "kill", "kill one process", "interrupt", "terminate", "file size limit", "clock", "clock jump")
TIMEOUT = 900.0  # seconds that a command may take


class Clock:
    """Count the seconds of a program that others may stop for minutes: a gap counts as one second at most."""

    def __init__(self) -> None:
        self.now, self._last = 0.0, time.monotonic()

    def tick(self) -> None:
        """Count the time since the last tick."""
        now = time.monotonic()
        self.now += min(now - self._last, 1.0)
        self._last = now


class Command:
    """A command in a forked process. Forking saves the seconds that importing torch takes."""

    def __init__(
        self, arguments: list[str], root: Path, clock: Clock, fault: str = "", draw: random.Random | None = None
    ) -> None:
        self.arguments, self.fault, self.clock, self.began = arguments, fault, clock, clock.now
        self.befell: list[str] = []  # faults that reached it while it ran
        self.printed = ""  # set once it has ended
        self.output, self.end = os.pipe()  # a limit on the size of files does not hold for a pipe
        os.set_blocking(self.output, False)
        fcntl.fcntl(self.end, fcntl.F_SETPIPE_SZ, 1 << 20)
        self._draw = draw = draw or random.Random()
        slow = arguments[0] == "run"  # its workers import torch
        self.signal_after = draw.uniform(0.0, 30.0 if slow else 3.0) if fault in SIGNALS else None
        self.limit = int(10 ** draw.uniform(1.5, 5.5)) if fault == "file size limit" else None
        self.shift = draw.choice((-1, 1)) * draw.uniform(1e3, 1e9) if fault.startswith("clock") else 0.0
        self.jump_after = draw.uniform(0.0, 3.0) if fault == "clock jump" else 0.0
        if fault and fault not in SIGNALS:
            self.befell.append(fault)
        self.pid = os.fork()
        if not self.pid:
            self._run(root)
        os.close(self.end)

    def _run(self, root: Path) -> None:
        """Run the command in the child process."""
        code = 70
        try:
            os.setsid()
            os.dup2(self.end, 1), os.dup2(self.end, 2)
            os.chdir(root)
            os.environ["RRU_CACHE_DIR"] = str(root / "cache")
            if self.limit is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, self.limit))
            if self.shift:
                timer = threading.Timer(self.jump_after, faults.shift_clock, [self.shift])
                timer.daemon = True
                timer.start() if self.jump_after else faults.shift_clock(self.shift)
            torch.set_num_threads(1)
            if self.arguments[0] == "stream":
                stream_runs(root)
            else:
                app(self.arguments, prog_name="rru")
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush(), sys.stdout.flush()
            os._exit(code)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs. Send the signal that is due."""
        done, status = os.waitpid(self.pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        spent = self.clock.now - self.began
        if self.signal_after is not None and spent > self.signal_after:
            self.signal_after = None
            self.befell.append(self.fault)
            with suppress(ProcessLookupError):  # it may not have made its group yet
                if self.fault == "kill one process":
                    os.kill(self._draw.choice(members(self.pid) or [self.pid]), signal.SIGKILL)
                else:
                    os.killpg(self.pid, SIGNALS[self.fault])
        if spent > TIMEOUT:
            self.befell.append("timeout")
            os.killpg(self.pid, signal.SIGKILL)
        return None

    def complaint(self, code: int) -> str:
        """Return what is wrong with how it ended; empty if nothing is."""
        with suppress(BlockingIOError):
            self.printed = os.read(self.output, 1 << 20).decode(errors="replace")
        os.close(self.output)
        if "timeout" in self.befell:
            return f"took more than {TIMEOUT} s: {self.printed[-500:]}"
        expected = {0, 1, 130} if self.befell or self.arguments[0] not in ("runs", "report", "plan", "stream") else {0}
        if self.fault in SIGNALS and self.befell:
            expected |= {-number for number in SIGNALS.values()}
        interrupted = self.fault in ("interrupt", "terminate") and "Interrupt" in self.printed
        if "Traceback" in self.printed and not interrupted:
            return self.printed[-1500:]
        expects = code in expected or "error: no runs in" in self.printed
        return "" if expects else f"exit code {code}: {self.printed[-500:]}"


def members(session: int) -> list[int]:
    """Return the ids of the living processes of a session."""
    alive = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            state, _, _, of = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(of) == session and state != "Z":
                alive.append(int(entry.name))
    return alive


def stream_runs(root: Path) -> None:
    """Step a trained model in a stream and compare it with the model run over the whole sequence."""
    for run in faults.runs_in(root)[:5]:
        if not run.best_epochs:
            continue
        try:
            model = rru.load(run.path).model
        except rru.training.RunError:
            continue
        x = torch.rand(6, 3, 88).round()
        with torch.no_grad():
            whole, stream = model(x)[0], rru.stream(model)
            stream.open(range(3))
            steps = torch.stack([stream.step(range(3), inputs) for inputs in x])
        torch.testing.assert_close(steps, whole, rtol=1e-4, atol=1e-4)


def random_command(root: Path, draw: random.Random) -> list[str]:
    """Return a random command."""
    cell, seed = draw.choice(CELLS), draw.choice(SEEDS)
    train = ["train", "bach", "--cell", cell, "--preset", "smoke", "--seed", str(seed), "--threads", "1"]
    kinds = {"train": 10, "resume": 4, "tune": 3, "runs": 2, "report": 2, "plan": 1, "run": 1, "stream": 1}
    kind = draw.choices(list(kinds), list(kinds.values()))[0]
    if kind == "resume" and (runs := faults.runs_in(root)):
        return ["resume", str(draw.choice(runs).path.relative_to(root)), "--threads", "1"]
    return {
        "train": [*train, *FREQUENT],
        "resume": ["runs"],
        "tune": SEARCH,
        "runs": ["runs"],
        "report": ["report", "-o", f"page{draw.randrange(3)}.html"],
        "plan": ["plan", *PLAN],
        "run": ["run", *PLAN, "--workers", "2", "--threads", "1"],
        "stream": ["stream"],
    }[kind]
