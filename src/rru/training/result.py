"""What came of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from rru.training.files import RunError


@dataclass(frozen=True)
class Result:
    """What came of a run: the content of result.json.

    **Arguments:**

    - `status`: `finished`, `diverged`, or `stopped` (then there is more to do, and no result.json).
    - `reason`: why it ended.
    - `metric`, `higher_is_better`: by what epochs were compared.
    - `best`: the best validation's value of that metric; None if no epoch was completed.
    - `best_epoch`: after which epoch, from 1; 0 if none.
    - `validation`: all metrics of the best epoch.
    - `test`: all metrics on the test split, of the best epoch's weights; evaluated once, at the end.
    - `epochs`, `steps`, `tokens`: how many were trained.
    - `parameters`: of the model.
    - `untrained_loss`: the loss before the first step, of validation or of the first batch, whichever is higher.
    - `seconds`: by what they went to. `model` is forward and backward pass, `data` the making of batches.
    """

    status: str
    reason: str
    metric: str
    higher_is_better: bool
    best: float | None
    best_epoch: int
    validation: Mapping[str, float]
    test: Mapping[str, float]
    epochs: int
    steps: int
    tokens: int
    parameters: int
    untrained_loss: float
    seconds: Mapping[str, float]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Result":
        """The result that result.json holds."""
        names = {field.name for field in fields(cls)}
        if set(content) != names:
            raise RunError(
                f"result.json must hold {', '.join(sorted(names))}; got {', '.join(sorted(content)) or 'nothing'}; "
                "remove it and resume to have it made again"
            )
        return cls(**content)
