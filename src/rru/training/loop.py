"""The loop: epochs of steps, validation after each, the test once at the end, and at any moment a way to go on."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rru.nn import count_parameters
from rru.training import toml
from rru.training.checkpoint import Checkpoint
from rru.training.distributed import Processes
from rru.training.events import Ended, Evaluated, Event, Notice, Started, Stepped, Watch
from rru.training.files import RunError
from rru.training.progress import Progress, Schedule
from rru.training.result import Result
from rru.training.run import Run
from rru.training.session import Session

if TYPE_CHECKING:
    from rru.tasks import Batch, Task


def train(
    task: Task,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    config: Mapping[str, Any],
    run: Run,
    watch: Watch | None = None,
    *,
    stop: Callable[[], bool] = lambda: False,
    processes: Processes | None = None,
) -> Result:
    """Trains a model to its result, from the beginning or from wherever the run's folder says it is.

    The same config gives the same result, bit for bit on the same number of threads, however often it was stopped or
    killed: so build `model` from a seeded generator. Afterwards the model has the best weights, unless it was stopped.

    **Arguments:**

    - `task`: gives batches, loss and metrics.
    - `model`: as the task made it, on the device to train on.
    - `optimiser`: over the model's parameters.
    - `config`: the run's; of its table `schedule` see `Schedule`.
    - `run`: the folder.
    - `watch`: is called with each of `rru.training.events`.
    - `stop`: asked after each step; once it says True, a checkpoint is written and the result's status is `stopped`.
    - `processes`: those that train this run together; see `rru.training.distributed`. Default: this one alone.

    **Returns:** what came of it. A run that had ended before is not run again.
    """
    if not toml.same(config, run.config):
        raise RunError(f"{run.path}: this run's config.toml differs from the config given; a run keeps the one it has")
    schedule = Schedule.of(config)
    cuda = sorted({parameter.device for parameter in model.parameters() if parameter.is_cuda}, key=str)
    with run.locked(), torch.random.fork_rng(devices=cuda), denormals_flushed():
        processes = processes or Processes()
        processes.wait()  # until the first has the lock
        if (ended := run.result()) is not None:
            result = Result.from_json(ended)
            run.checkpoints.clear()  # it may have been killed before it could
            if result.best_epoch:
                model.load_state_dict(run.best(result.best_epoch))
        else:
            session = Session(model, optimiser, schedule.seed)
            result = _Loop(task, session, schedule, run, watch, processes).run_to_end(stop)
        if watch is not None:
            watch(Ended(result))
        return result


class _Loop:
    def __init__(
        self,
        task: Task,
        session: Session,
        schedule: Schedule,
        run: Run,
        watch: Watch | None,
        processes: Processes,
    ) -> None:
        self.task, self.session, self.schedule, self.run, self.watch = task, session, schedule, run, watch
        self.processes = processes
        self.saved_best = 0
        self.last_save = self.last_tick = time.monotonic()

    @property
    def progress(self) -> Progress:
        return self.session.progress

    def run_to_end(self, stop: Callable[[], bool]) -> Result:
        self._begin()
        reason = self.progress.end(self.schedule)  # there is one if it was killed while testing
        while not reason:
            if self._epoch(stop):
                self._save()
                return self._result("stopped", "on request", {})
            reason = self.progress.end(self.schedule)
        test = self._test()
        result = self._result("diverged" if self.progress.diverged else "finished", reason, test)
        self.run.write_result(asdict(result))
        self.run.keep_best({self.progress.best_epoch})
        self.run.checkpoints.clear()
        return result

    def _begin(self) -> None:
        """Goes on from the last checkpoint, or evaluates the untrained model."""
        checkpoint, damages = self.run.checkpoints.load()
        self.processes.wait()  # until all have read it: the first may soon write another
        for damage in damages:
            self._tell(Notice(f"a damaged checkpoint was passed over, the run goes on from the one before: {damage}"))
        if checkpoint is not None:
            self._resume(checkpoint)
        self.progress.lines = self.run.keep_lines(self.progress.lines)
        self.session.model.train()
        if checkpoint is None:
            scores = self._evaluate("valid")
            self.progress.untrained_loss = scores["loss"]
            self._line({"kind": "epoch", "epoch": 0, "step": 0, "validation": scores})
            self._save()
        done, schedule = self.progress, self.schedule
        about = (count_parameters(self.session.model), done.untrained_loss, self.task.metric)
        self._tell(Started(done.epoch, done.step, schedule.epochs, schedule.patience, *about))

    def _resume(self, checkpoint: Checkpoint) -> None:
        if changed := toml.differences(self.run.config, checkpoint.state.get("config", self.run.config)):
            raise RunError(
                f"{self.run.path}: config.toml was changed since this run began ({changed}); "
                "undo that, or train in another folder"
            )
        self.session.restore(checkpoint)
        self.saved_best = self.progress.best_epoch
        if self.saved_best:
            self.run.best(self.saved_best)  # better to know now than at the end that it is damaged
        self.session.carried = self.processes.own_state(self.session.carried)
        digits = "its numbers may differ in their last digits"
        self._compare(checkpoint, "threads", torch.get_num_threads(), digits)
        self._compare(checkpoint, "processes", self.processes.count, f"{digits}, and its dropout is drawn otherwise")

    def _compare(self, checkpoint: Checkpoint, what: str, now: int, so: str) -> None:
        """Tells if a checkpoint was written with another number of something."""
        before = checkpoint.state.get(what, now)
        if before != now:
            self._tell(Notice(f"the run goes on with {now} {what} and had {before}: {so}"))

    def _epoch(self, stop: Callable[[], bool]) -> bool:
        """What is left of an epoch, and its validation. True if asked to stop before that."""
        batches = self.task.epoch(self.session.epoch_generator())
        while self.progress.index < len(batches):
            with self.progress.timed("data"):
                batch = batches[self.progress.index]
                if self.session.device.type != "cpu":
                    batch = batch.to(self.session.device)
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

    def _step(self, batch: Batch, steps: int) -> None:
        progress, session = self.progress, self.session
        with progress.timed("model"):
            session.optimiser.zero_grad(set_to_none=True)
            part, share = self.processes.part(batch)
            with self.processes.own_randomness():
                loss, carried = self.task.loss(session.model, part, None if batch.fresh else session.carried)
            loss.backward(loss.new_tensor(share))  # type: ignore[no-untyped-call]
            value = self.processes.sum_gradients(session.model, loss.item() * share)
            if not math.isfinite(value):
                progress.diverged = f"the training loss became {value} at step {progress.step + 1}"
                return
        with progress.timed("optimiser"):
            session.optimiser.step()
        session.carried = carried
        progress.count(value, batch.tokens)
        self._tell(Stepped(progress.epoch + 1, progress.index, steps, progress.step, value, batch.tokens))
        if self.schedule.log_steps and progress.step % self.schedule.log_steps == 0:
            mean = progress.line_loss / progress.line_steps
            progress.line_loss, progress.line_steps = 0.0, 0
            self._line({"kind": "steps", "epoch": progress.epoch + 1, "step": progress.step, "train_loss": mean})

    def _close_epoch(self) -> None:
        """Validation, the best weights, the epoch's line, a checkpoint."""
        progress = self.progress
        train_loss = progress.epoch_loss / max(progress.index, 1)
        scores = self._evaluate("valid")
        self.session.close_epoch()
        progress.check_epoch()
        if not math.isfinite(scores[self.task.metric]):
            progress.diverged = f"validation after epoch {progress.epoch} gives {scores[self.task.metric]}"
        elif self._is_better(scores):
            progress.best_epoch, progress.validation = progress.epoch, dict(scores)
            with progress.timed("saving"):
                self.run.save_best(progress.epoch, self.session.model.state_dict(), {"epoch": progress.epoch, **scores})
        about = {"train_loss": train_loss, "validation": scores, "best_epoch": progress.best_epoch}
        self._line({"kind": "epoch", "epoch": progress.epoch, "step": progress.step, **about})
        self._save()
        best = progress.validation.get(self.task.metric, math.nan)
        self._tell(Evaluated(progress.epoch, progress.step, train_loss, scores, best, progress.best_epoch))

    def _is_better(self, scores: Mapping[str, float]) -> bool:
        if not self.progress.best_epoch:
            return True
        new, old = scores[self.task.metric], self.progress.validation[self.task.metric]
        return new > old if self.task.higher_is_better else new < old

    def _test(self) -> dict[str, float]:
        """The test, once, on the best weights; nothing if no epoch had any."""
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
            checkpoint.state.update(processes=self.processes.count, config=self.run.config)
            self.run.checkpoints.save(checkpoint)
        self.run.keep_best({self.saved_best, self.progress.best_epoch})  # of the checkpoint before, and of this one
        self.saved_best = self.progress.best_epoch
        self.last_save = time.monotonic()

    def _line(self, line: Mapping[str, Any]) -> None:
        self._tick()
        self.run.append({**line, "tokens": self.progress.tokens, "seconds": self.progress.seconds["total"]})
        self.progress.lines += 1

    def _tick(self) -> None:
        """Adds the time since the last call to the run's total."""
        now = time.monotonic()
        self.progress.seconds["total"] = self.progress.seconds.get("total", 0.0) + now - self.last_tick
        self.last_tick = now

    def _result(self, status: str, reason: str, test: Mapping[str, float]) -> Result:
        self._tick()
        progress, metric = self.progress, self.task.metric
        return Result(
            status=status,
            reason=reason,
            metric=metric,
            higher_is_better=self.task.higher_is_better,
            best=progress.validation.get(metric),
            best_epoch=progress.best_epoch,
            validation=dict(progress.validation),
            test=dict(test),
            epochs=progress.epoch,
            steps=progress.step,
            tokens=progress.tokens,
            parameters=count_parameters(self.session.model),
            untrained_loss=progress.untrained_loss,
            seconds=dict(progress.seconds),
        )

    def _tell(self, event: Event) -> None:
        if self.watch is not None:
            self.watch(event)
        elif isinstance(event, Notice):
            warnings.warn(event.message, RuntimeWarning, stacklevel=2)


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Numbers too small to matter count as zero: they would cost a hundred times as much as others.

    Torch's threads take this over from the one that starts them, once: so begin before anything is computed.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
