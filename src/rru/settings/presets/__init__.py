"""Presets: the settings of every task and cell, as in the paper and smaller.

```python
from rru.settings import presets

config = presets.load("jsb", "rru", "paper")
config = presets.override(config, ["lr=0.001", "model.budget=2M"])
```

Each task has one TOML file. The table `[common]` applies to all cells; `[rru]`, `[gru]`, `[lstm]` and `[mogrifier]`
apply to one. Together they define the preset `paper`. Every other table, such as `[cpu]` or `[smoke]`, is one more:
it overrides settings for all cells, and a table below it, such as `[smoke.rru]`, overrides them for one cell. A file
that `follows` another inherits its settings and overrides some; all files follow `defaults.toml`.
"""

from rru.settings.cells import cells
from rru.settings.presets.describing import described
from rru.settings.presets.loading import OWN_PRESETS, derived, load, merged, names, tasks
from rru.settings.presets.overrides import all_settings, changed, override, settings_by_name
from rru.suggestions import choice

__all__ = [
    "OWN_PRESETS",
    "all_settings",
    "cells",
    "changed",
    "choice",
    "derived",
    "described",
    "load",
    "merged",
    "names",
    "override",
    "settings_by_name",
    "tasks",
]
