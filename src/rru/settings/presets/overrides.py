"""Change settings from text such as `--set KEY=VALUE`."""

from collections.abc import Iterable
from contextlib import suppress

from rru.nn.options import Declared
from rru.settings.config import Config, Setting, unknown_setting

_SUFFIXES = {"k": 10**3, "m": 10**6}


def override(config: Config, changes: Iterable[str]) -> Config:
    """Return a config with some values changed; raise ValueError, saying what is allowed, for a wrong change.

    **Arguments:**

    - `config`: the config to change, from `load`.
    - `changes`: each `table.key=value`, or `key=value` if only one table has that key. Integers may be written as
      5000000, 5_000_000, 5e6 or 5M. `none` removes an optional setting, such as `task.limit`.
    """
    values: dict[str, object] = {}
    for change in changes:
        name, equals, text = (part.strip() for part in change.partition("="))
        if not equals or not name:
            raise ValueError(f"a change must be key=value, such as optimiser.lr=0.01; got {change!r}")
        setting = _find(name, config)
        option = setting.declared.option
        if text.lower() == "none" and "none" not in option.choices:
            if setting.required:
                raise ValueError(f"{setting.name} ({option.about}) must have a value, got {text}")
            values[setting.name] = None
        else:
            values[setting.name] = setting.check(_parsed(text, setting.declared))
    return config.changed(values)


def changed(config: Config, changes: Iterable[str]) -> set[str]:
    """Return the full names, such as `optimiser.lr`, of the settings that `override` would change."""
    return {_find(change.partition("=")[0].strip(), config).name for change in changes}


def _find(name: str, config: Config) -> Setting:
    """Find a setting by its full name, or by its key if only one table has it."""
    known = config.settings
    matching = [setting for full, setting in known.items() if name in (full, setting.declared.name)]
    if not matching:
        raise ValueError(unknown_setting(name, known, f"{config.task.name} and {config.model.cell}"))
    open_to_change = [setting for setting in matching if not setting.chosen]
    if not open_to_change:
        raise ValueError(f"{matching[0].name} cannot be changed: it selects the preset and the data")
    if len(open_to_change) > 1:
        names = " or ".join(setting.name for setting in open_to_change)
        raise ValueError(f"{name!r} is ambiguous: write {names}")
    return open_to_change[0]


def _parsed(text: str, declared: Declared) -> object:
    """Parse a value by its declared type; return the text itself if it cannot, for `Setting.check` to reject."""
    if bool in declared.kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text in declared.option.choices:
        return text
    number, factor = text, 1
    if int in declared.kinds and text[-1:].lower() in _SUFFIXES:
        number, factor = text[:-1], _SUFFIXES[text[-1].lower()]
    if int in declared.kinds:
        with suppress(ValueError):
            return int(number) * factor  # exact, where a float would lose digits
    if int in declared.kinds or float in declared.kinds:
        with suppress(ValueError, OverflowError):
            value = float(number) * factor
            whole = int in declared.kinds and abs(value - round(value)) < 1e-6
            return round(value) if whole else value
    return text
