"""What every trained model knows of its run: the epochs, and their picture."""

from pathlib import Path

from rru.inference.curves import Picture, curve
from rru.training import Run, RunError
from rru.training.run_files import Epoch, is_export


class HasRun:
    """A model with the folder of its run, `path`."""

    path: Path

    @property
    def history(self) -> list[Epoch]:
        """The epochs, from before training on: number, training loss and validation scores; of an export none."""
        return [] if is_export(self.path) else Run(self.path).epochs()

    def plot(self, score: str = "loss") -> Picture:
        """Draw the learning curve; a notebook shows it.

        **Arguments:** `score`: one of the validation scores. That of the training steps is drawn for `loss`.
        """
        if not (epochs := self.history):
            raise RunError(f"{self.path}: has no epochs to draw; an exported model does not have them")
        return curve(epochs, score, self._title)

    @property
    def _title(self) -> str:
        return str(self.path.name)
