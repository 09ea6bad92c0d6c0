"""The training loop: validates after each epoch, tests once at the end, and can resume from any checkpoint."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING

import torch
from torch import nn

from rru.nn import count_parameters
from rru.settings import toml
from rru.settings.tables import Schedule
from rru.training.checkpoint import Checkpoint, limited
from rru.training.denormals import denormals_flushed
from rru.training.distributed import Processes
from rru.training.errors import RunError
from rru.training.events import Ended, Evaluated, Event, Notice, Started, Stepped, Watch
from rru.training.folder import Run
from rru.training.precision import autocast, in_float32, slow_notice
from rru.training.progress import Progress
from rru.training.rates import rate_share
from rru.training.result import Result
from rru.training.session import Session
from rru.training.status import RunStatus

if TYPE_CHECKING:
    from rru.tasks import Batch, Task


def train(
    task: Task,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    run: Run,
    watch: Watch | None = None,
    *,
    stop: Callable[[], bool] = lambda: False,
    processes: Processes | None = None,
) -> Result:
    """Train a model until the run ends, from the start or from the run's last checkpoint.

    With the same number of threads, the same config gives bit-identical results, however often the run was stopped or
    killed. This requires that `model` was initialised from a fixed seed. Afterwards the model holds the best weights,
    unless training was stopped.

    **Arguments:**

    - `task`: provides batches, loss and metrics.
    - `model`: the task's model, on the device to train on.
    - `optimiser`: an optimiser over the model's parameters.
    - `run`: the run folder; `schedule` in its config sets how long to train.
    - `watch`: called with each event of `rru.training.events`.
    - `stop`: called after each step; once it returns True, a checkpoint is written and the status is `stopped`.
    - `processes`: the processes that train this run together; see `rru.training.distributed`. Default: only this one.

    **Returns:** the result. A run that has ended is not trained again; its result is read from its folder.
    """
    schedule = run.config.schedule
    cuda = sorted({parameter.device for parameter in model.parameters() if parameter.is_cuda}, key=str)
    processes = processes or Processes()
    lock = run.locked() if processes.first else nullcontext()
    with lock, torch.random.fork_rng(devices=cuda), denormals_flushed():
        processes.wait()  # until the first has the lock
        if (ended := run.result()) is not None:
            result = ended
            if processes.first:
                run.checkpoints.clear()  # in case it was killed before it could remove them
            if result.best_epoch:
                model.load_state_dict(run.best(result.best_epoch, limited(model.state_dict())))
        else:
            session = Session(model, optimiser, schedule.seed, run.config.optimiser.ema)
            result = _Loop(task, session, schedule, run, watch, processes).run_to_end(stop)
        if watch is not None:
            watch(Ended(result))
        return result


class _Loop:
    def __init__(
        self, task: Task, session: Session, schedule: Schedule, run: Run, watch: Watch | None, processes: Processes
    ) -> None:
        self.task, self.session, self.schedule, self.run, self.watch = task, session, schedule, run, watch
        self.processes = processes
        self.saved_best = 0
        self.resumed = False  # whether no step has been made since
        self.last_save = self.last_tick = time.monotonic()

    @property
    def progress(self) -> Progress:
        return self.session.progress

    def run_to_end(self, stop: Callable[[], bool]) -> Result:
        self._begin()
        reason = self.progress.end(self.schedule)  # not empty if the run was killed while testing
        while not reason:
            if self._epoch(stop):
                self._save()
                return self._result(RunStatus.STOPPED, "on request", {})
            reason = self.progress.end(self.schedule)
        test = self._test()
        if test and self.processes.first and (details := self.task.details(self.session.model)):
            self.run.write_details(details)
        status = RunStatus.DIVERGED if self.progress.diverged else RunStatus.FINISHED
        result = self._result(status, reason, test)
        if self.processes.first:
            self.run.write_result(asdict(result))
            self.run.keep_best({self.progress.best_epoch})
            self.run.checkpoints.clear()
        return result

    def _begin(self) -> None:
        """Resume from the last checkpoint, or evaluate the untrained model."""
        checkpoint, damages = self.run.checkpoints.load(self.session.model.state_dict())
        self.processes.wait()  # until all have read it: the first process may then write another
        for damage in damages:
            self._tell(Notice(f"skipped a damaged checkpoint and resumed from the previous one: {damage}"))
        if checkpoint is not None:
            self._resume(checkpoint)
        position = (-1, -1) if checkpoint is None else (self.progress.epoch, self.progress.step)
        if self.processes.first:
            self.progress.lines, damages = self.run.keep_lines(*position)
            for damage in damages:
                self._tell(Notice(damage))
        self.session.model.train()
        if checkpoint is None:
            scores = self._evaluate("valid")
            self.progress.untrained_loss = scores["loss"]
            self._line({"kind": "epoch", "epoch": 0, "step": 0, "validation": scores})
            self._save()
        done, schedule = self.progress, self.schedule
        if slow := slow_notice(schedule.precision, self.session.device):
            self._tell(Notice(slow))
        task_facts = (self._untrained_loss(), self.task.metric.key, self.task.chosen_by)
        counts = (schedule.epochs, schedule.patience, count_parameters(self.session.model))
        self._tell(Started(done.epoch, done.step, *counts, *task_facts))

    def _untrained_loss(self) -> float:
        """Return the validation loss before training from metrics.jsonl; the counter may hold the first batch's."""
        before = [epoch.validation for epoch in self.run.epochs() if epoch.epoch == 0]
        return before[0].get("loss", self.progress.untrained_loss) if before else self.progress.untrained_loss

    def _resume(self, checkpoint: Checkpoint) -> None:
        before = checkpoint.state.get("config", self.run.tables)
        if not isinstance(before, dict) or not all(isinstance(table, dict) for table in before.values()):
            raise RunError(f"{self.run.path}: the config in its checkpoint must be tables of settings")
        if changed := toml.differences(self.run.tables, before):
            raise RunError(
                f"{self.run.path}: config.toml has changed since this run started ({changed}); "
                "undo the change, or train in another folder"
            )
        self.session.restore(checkpoint)
        self.resumed = True
        self.saved_best = self.progress.best_epoch
        if self.saved_best:
            self.run.best(self.saved_best, limited(checkpoint.model))  # fail now, not at the end, if it is damaged
            if self.task.metric.key not in self.progress.validation:
                raise RunError(f"{self.run.path}: the checkpoint lacks the best {self.task.metric.key}")
        self.session.carried = self.processes.own_state(self.session.carried)
        if self.processes.first:
            changed_parts = self.run.note_environment(self.progress.epoch, self.progress.step)
            if named := [name for name in ("versions", "cpu", "accelerator") if name in changed_parts]:
                self._tell(Notice(f"resuming with different {' and '.join(named)}; env.json records both"))
        digits = "the result may differ, at first in the last digits"
        self._compare(checkpoint, "threads", torch.get_num_threads(), digits)
        self._compare(checkpoint, "processes", self.processes.count, f"{digits}, and dropout masks differ")

    def _compare(self, checkpoint: Checkpoint, what: str, now: int, so: str) -> None:
        """Notify the user if the checkpoint was written with a different number of threads or processes."""
        before = checkpoint.state.get(what, now)
        if before != now:
            self._tell(Notice(f"resuming with {now} {what} instead of {before}: {so}"))

    def _epoch(self, stop: Callable[[], bool]) -> bool:
        """Train the rest of an epoch and validate. Return True if stopped before the epoch's end."""
        batches = self.task.epoch(self.session.epoch_generator())
        while self.progress.index < len(batches):
            with self.progress.timed("data"):
                batch = batches[self.progress.index]
            with self._resume_errors():
                self._step(batch, len(batches))
            if self.progress.diverged:
                return False
            stopped, due = self.processes.any(stop(), self._save_is_due())
            if stopped:
                return True
            if due:
                self._save()
        self._close_epoch()
        return False

    @contextmanager
    def _resume_errors(self) -> Iterator[None]:
        """Turn errors of the first step after resuming into RunError: a forged checkpoint may hold anything."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
            if not self.resumed or "allocate memory" in str(error):  # torch's wording
                raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise RunError(f"{self.run.path}: training cannot continue from its checkpoint ({reason})") from error
        self.resumed = False

    def _step(self, batch: Batch, steps: int) -> None:
        progress, session = self.progress, self.session
        with progress.timed("model"):
            session.optimiser.zero_grad(set_to_none=True)
            part, share = self.processes.part(batch)
            with self.processes.own_randomness(), autocast(self.schedule.precision, session.device):
                loss, carried = self.task.loss(session.model, part, session.carried)
            loss.backward(loss.new_tensor(share))  # type: ignore[no-untyped-call]
            value = self.processes.sum_gradients(session.model, loss.item() * share)
            if not math.isfinite(value):
                progress.diverged = f"the training loss became {value} at step {progress.step + 1}"
                return
        share = rate_share(progress.step, self.schedule.epochs * steps, self.schedule)
        with progress.timed("optimiser"):
            session.step(share)
        session.carried = in_float32(carried)
        progress.count(value, batch.tokens)
        self._tell(Stepped(progress.epoch + 1, progress.index, steps, progress.step, value, batch.tokens))
        if self.schedule.log_steps and progress.step % self.schedule.log_steps == 0:
            self._log_steps(share)

    def _log_steps(self, share: float) -> None:
        """Log the mean loss since the last line and, if the learning rate changes, that of the last step."""
        progress, (group, *_) = self.progress, self.session.optimiser.param_groups
        mean = progress.line_loss / progress.line_steps
        progress.line_loss, progress.line_steps = 0.0, 0
        line = {"kind": "steps", "epoch": progress.epoch + 1, "step": progress.step, "train_loss": mean}
        changes = self.schedule.decay != "none" or self.schedule.warmup
        self._line({**line, "lr": float(group["lr"] * share)} if changes else line)

    def _close_epoch(self) -> None:
        """Validate, save the weights if they are the best so far, log the epoch and write a checkpoint."""
        progress = self.progress
        train_loss = progress.epoch_loss / max(progress.index, 1)
        with self.session.evaluated_weights():
            if self.processes.first:  # the others read the best weights from its file
                with progress.timed("evaluation"):
                    self.task.calibrate(self.session.model)
            scores = self._evaluate("valid")
            tested = self._evaluate("test") if self.schedule.test_every_epoch else {}
        self.session.close_epoch()
        if not self.task.starts_well:
            progress.check_epoch()
        score = scores[self.task.metric.key]
        if not math.isfinite(score):
            progress.diverged = f"validation after epoch {progress.epoch} gave {score}"
        elif not progress.best_epoch or self.task.better(scores, progress.validation):
            progress.best_epoch, progress.validation = progress.epoch, dict(scores)
            if self.processes.first:
                with progress.timed("saving"), self.session.evaluated_weights():
                    weights = self.session.model.state_dict()
                    self.run.save_best(progress.epoch, weights, {"epoch": progress.epoch, **scores})
        line = {"kind": "epoch", "epoch": progress.epoch, "step": progress.step, "train_loss": train_loss}
        more = {"test": tested} if tested else {}
        self._line({**line, "validation": scores, "best_epoch": progress.best_epoch, **more})
        self._save()
        best = progress.validation.get(self.task.metric.key, math.nan)
        self._tell(Evaluated(progress.epoch, progress.step, train_loss, scores, best, progress.best_epoch, tested))

    def _test(self) -> dict[str, float]:
        """Return the test scores of the best weights; empty if there are none."""
        if not self.progress.best_epoch:
            return {}
        self.processes.wait()  # until the first has written them
        self.session.model.load_state_dict(self.run.best(self.progress.best_epoch))
        return self._evaluate("test")

    def _evaluate(self, split: str) -> dict[str, float]:
        with self.progress.timed("evaluation"):
            scores = self.task.evaluate(self.session.model, split) if self.processes.first else None
            return self.processes.from_first(scores)

    def _save_is_due(self) -> bool:
        steps, seconds = self.schedule.checkpoint_steps, self.schedule.checkpoint_seconds
        due = bool(steps) and self.progress.step % steps == 0
        return due or (bool(seconds) and time.monotonic() - self.last_save >= seconds)

    def _save(self) -> None:
        self._tick()
        with self.progress.timed("saving"):
            carried = self.processes.whole_state(self.session.carried)
            checkpoint = self.session.checkpoint(carried)
            checkpoint.state.update(processes=self.processes.count, config=self.run.tables)
            if self.processes.first:
                self.run.checkpoints.save(checkpoint)
                self.run.keep_best({self.saved_best, self.progress.best_epoch})  # for the last checkpoint and this one
        self.saved_best = self.progress.best_epoch
        self.last_save = time.monotonic()

    def _line(self, line: Mapping[str, object]) -> None:
        self._tick()
        if self.processes.first:
            self.run.append({**line, "tokens": self.progress.tokens, "seconds": self.progress.seconds["total"]})
        self.progress.lines += 1

    def _tick(self) -> None:
        """Add the time since the last call to the run's total."""
        now = time.monotonic()
        self.progress.seconds["total"] = self.progress.seconds.get("total", 0.0) + now - self.last_tick
        self.last_tick = now

    def _result(self, status: RunStatus, reason: str, test: Mapping[str, float]) -> Result:
        self._tick()
        return self.progress.result(status, reason, self.task.metric, test, count_parameters(self.session.model))

    def _tell(self, event: Event) -> None:
        if self.watch is not None:
            self.watch(event)
        elif isinstance(event, Notice):
            warnings.warn(event.message, RuntimeWarning, stacklevel=2)
