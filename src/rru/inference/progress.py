"""Show the progress of `rru.fit`: a bar in a terminal or a notebook; elsewhere only what the user should know."""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from rru.training import Ended, Evaluated, Event, Notice, Refitted, Result, Started, Stepped, Watch
from rru.training.run_files import Epoch

BAR = 20  # characters
SECONDS = 0.1  # between two pictures of the bar


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules


class ProgressLine:
    """A watcher that shows one run in a line.

    **Arguments:**

    - `name`: what is trained.
    - `folder`: the folder of its run.
    - `shown`: True: always show the bar; False: show nothing; None: show the bar in a terminal or a notebook, and
      elsewhere only notices and what was understood of data.
    """

    def __init__(self, name: str, folder: Path, shown: bool | None) -> None:
        self.stream: TextIO = sys.stdout if in_notebook() else sys.stderr
        self.name, self.folder, self.quiet = name, folder, shown is False
        self.bar = (in_notebook() or self.stream.isatty()) if shown is None else shown
        self.began = self.drawn = 0.0
        self.started: Started | None = None
        self.score, self.refitted = "", False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.drawn:
            self._clear()

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self.started, self.began = event, time.monotonic()
                if event.step:
                    self.say(f"resuming after {event.step:,} steps")
            case Stepped():
                self._draw(event.epoch - 1 + event.index / event.steps)
            case Evaluated() if self.started:
                value = event.validation[self.started.metric]
                best = f", {self.started.best} {event.best:.4g} (epoch {event.best_epoch})" if event.best_epoch else ""
                self.score = f"  {self.started.metric} {value:.4g}{best}"
                self._draw(event.epoch, at_once=True)
            case Refitted():
                self.refitted = True
                if self.bar:
                    self._show(f"{self.name} on all data: epoch {event.epoch} of {event.epochs}")
            case Notice():
                self.say(event.message)
            case Ended() if self.started is None and not self.refitted:
                self.say(f"already finished, loaded from {self.folder}: {_ending(event.result)}")
            case Ended() if self.bar:
                self.say(f"{_ending(event.result)}; {self.folder}")

    def say(self, text: str) -> None:
        """Print a line, above the bar, unless all is to be quiet."""
        if self.quiet:
            return
        if self.drawn:
            self._clear()
        print(f"{self.name}: {text}", file=self.stream, flush=True)

    def _draw(self, done: float, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if not self.bar or self.started is None or (now - self.drawn < SECONDS and not at_once):
            return
        share = min(done / max(self.started.epochs, 1), 1.0)
        minutes, seconds = divmod(int(now - self.began), 60)
        bar = f"{'#' * round(BAR * share):-<{BAR}}"
        text = f"{self.name} [{bar}] epoch {done:.1f} of {self.started.epochs}, {minutes}:{seconds:02}{self.score}"
        self._show(text)

    def _show(self, text: str) -> None:
        """Show a text in place of the one before."""
        self.drawn = time.monotonic()
        width = shutil.get_terminal_size().columns - 1
        print(f"\r{text[:width]:<{width}}", end="", file=self.stream, flush=True)

    def _clear(self) -> None:
        width = shutil.get_terminal_size().columns - 1
        print(f"\r{'':<{width}}\r", end="", file=self.stream, flush=True)
        self.drawn = 0.0


def _ending(result: Result) -> str:
    """Describe how a run ended."""
    parts = [f"{result.status}, {result.reason}"]
    if result.best is not None and result.best_epoch:
        parts.append(f"best {result.metric} {result.best:.4g} after epoch {result.best_epoch} of {result.epochs}")
    if (test := result.test.get(result.metric)) is not None:
        parts.append(f"test {result.metric} {test:.4g}")
    return "; ".join(parts)


def together(shown: Watch, on_epoch: Callable[[Epoch], object] | None, watch: Watch | None) -> Watch:
    """Return a watcher that tells the bar, the user's function of epochs, and the user's watcher."""

    def tell(event: Event) -> None:
        shown(event)
        if on_epoch is not None and isinstance(event, Evaluated):
            on_epoch(event.record)
        if watch is not None:
            watch(event)

    return tell
