"""TensorBoard, for those who watch many runs there: losses and scores as event files in a run's folder."""

from pathlib import Path

from rru.training.events import Ended, Evaluated, Event, Started, Stepped, Watch


def tensorboard(folder: Path, watch: Watch) -> Watch:
    """A watcher that writes to `tensorboard/` in a run's folder, and passes everything on to another.

    A run that goes on from a checkpoint takes back what was written after it.

    **Arguments:**

    - `folder`: the run's.
    - `watch`: the other watcher.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError(f"TensorBoard is not installed ({error}): `pip install rru[tensorboard]`") from error
    writer: SummaryWriter | None = None

    def write(event: Event) -> None:
        nonlocal writer
        match event:
            case Started():
                writer = SummaryWriter(folder / "tensorboard", purge_step=event.step + 1 if event.step else None)
            case Stepped() if writer:
                writer.add_scalar("loss/train", event.loss, event.step)
            case Evaluated() if writer:
                for name, value in event.validation.items():
                    writer.add_scalar(f"{name}/validation", value, event.step)
            case Ended() if writer:
                for name, value in event.result.test.items():
                    writer.add_scalar(f"{name}/test", value, event.result.steps)
                writer.close()
        watch(event)

    return write
