"""The result of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rru.training.errors import RunError
from rru.training.run_files import count, is_number
from rru.training.status import ENDED, RunStatus

REMOVE = "; remove it, then `rru resume` trains the run again, from its last checkpoint or else from the start"
SHOWN, MAX_SHOWN = 60, 500  # characters of a wrong value and of wrong names that an error shows


@dataclass(frozen=True)
class Result:
    """The result of a run, as stored in result.json.

    **Arguments:**

    - `status`: `FINISHED`, `DIVERGED`, or `STOPPED` (the run can be resumed and has no result.json).
    - `reason`: why it ended.
    - `metric`, `higher_is_better`: the metric that epochs were compared by.
    - `best`: the best validation score in that metric; None if no epoch was completed.
    - `best_epoch`: the epoch that reached it, counted from 1; 0 if none.
    - `validation`: all scores of the best epoch.
    - `test`: all scores of the best epoch's weights on the test split, evaluated once, at the end.
    - `epochs`, `steps`, `tokens`: how many were trained.
    - `parameters`: the number of parameters of the model.
    - `untrained_loss`: the loss before the first step: the higher of the validation loss and the first batch's loss.
    - `seconds`: time spent, by activity: `model` is the forward and backward passes, `data` is making batches.
    """

    status: RunStatus
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
    def from_json(cls, content: Mapping[str, Any], path: Path) -> "Result":
        """Make a result from the content of result.json; raise RunError, naming `path`, if a name or type differs."""
        names = {field.name for field in fields(cls)}
        if set(content) != names:
            raise RunError(
                f"{path}: must hold {', '.join(sorted(names))}; "
                f"got {', '.join(sorted(content))[:MAX_SHOWN] or 'nothing'}{REMOVE}"
            )
        if wrong := wrong_values(content):
            raise RunError(f"{path}: {'; '.join(wrong.values())}{REMOVE}")
        return cls(**{**content, "status": RunStatus(content["status"])})


def wrong_values(content: Mapping[str, object]) -> dict[str, str]:
    """Return what is wrong with the values of a result.json, by name. Missing and unknown names are not checked."""
    wrong = {}
    for name, (check, right) in _CHECKS.items():
        if name in content and not check(value := content[name]):
            nested = isinstance(value, dict | list)
            got = f"a {type(value).__name__} of other content" if nested else repr(value)[:SHOWN]
            wrong[name] = f"must have {right} as {name}, got {got}"
    return wrong


def _is_score(value: object) -> bool:
    return value is None or is_number(value)  # NaN and infinities are written as null


def _is_mapping(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


_CHECKS: dict[str, tuple[Callable[[object], bool], str]] = {
    "status": (lambda value: isinstance(value, str) and value in ENDED, " or ".join(ENDED)),
    "higher_is_better": (lambda value: isinstance(value, bool), "true or false"),
    "seconds": (_is_mapping(is_number), "numbers by name"),
    **dict.fromkeys(("reason", "metric"), (lambda value: isinstance(value, str), "a text")),
    **dict.fromkeys(("best", "untrained_loss"), (_is_score, "a number or null")),
    **dict.fromkeys(("validation", "test"), (_is_mapping(_is_score), "numbers by name")),
    **dict.fromkeys(
        ("best_epoch", "epochs", "steps", "tokens", "parameters"), (lambda value: count(value) is not None, "a count")
    ),
}
