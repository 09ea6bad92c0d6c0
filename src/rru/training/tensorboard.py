"""Write losses and scores as TensorBoard event files in the run folder."""

from pathlib import Path

from rru.extras import extra
from rru.files import own_folder
from rru.training.events import Ended, Evaluated, Event, Started, Stepped, Watch


def tensorboard(folder: Path, watch: Watch) -> Watch:
    """Return a watcher that writes to `tensorboard/` in the run folder and passes each event on to `watch`.

    When a run resumes, TensorBoard hides the points written after the checkpoint.

    **Arguments:**

    - `folder`: the run folder.
    - `watch`: the watcher to pass events on to.
    """
    with extra("tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    writer: SummaryWriter | None = None

    def write(event: Event) -> None:
        nonlocal writer
        match event:
            case Started():
                place = own_folder(folder / "tensorboard")
                writer = SummaryWriter(place, purge_step=event.step + 1 if event.step else None)
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
