"""Plans: the paper's tables and figures as lists of runs, each with its place in the table or figure.

```python
from rru.experiments import plans

plan = plans.load("table1", "cpu", cells=["rru", "gru"], tasks=["jsb"], seeds=[0, 1, 2])
for run in plan.runs:
    print(run.task, run.line, run.id)
```

`plans.toml` defines the plans. A plan holds no results; plans that contain the same config share its run.
"""

from rru.experiments.plans.plan import (
    COMPARE,
    PRESETS,
    Plan,
    PlannedRun,
    compare,
    load,
    names,
    number_text,
    seeds_of,
    tasks,
)

__all__ = ["COMPARE", "PRESETS", "Plan", "PlannedRun", "compare", "load", "names", "number_text", "seeds_of", "tasks"]
