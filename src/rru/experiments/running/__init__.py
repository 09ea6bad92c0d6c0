"""Run plans: in local processes (`workers.py`) or on a Ray cluster (`cluster.py`)."""

from rru.experiments.running.events import Outcome, PlanEvent, PlanWatch, RunLost, RunReported, RunStarted
from rru.experiments.running.states import RunState, run_state, to_do

__all__ = [
    "Outcome",
    "PlanEvent",
    "PlanWatch",
    "RunLost",
    "RunReported",
    "RunStarted",
    "RunState",
    "run_state",
    "to_do",
]
