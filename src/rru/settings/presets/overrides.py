"""Change settings by full or short name, from text such as `--set KEY=VALUE` or from values in Python."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from rru.kinds import KINDS
from rru.nn.options import Declared
from rru.settings.cells import cells
from rru.settings.config import Config, Setting, settings_of, unknown_setting

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
        values |= settings_by_name({name: text}, config.settings, _user(config))
    return config.changed(values)


def settings_by_name(changes: Mapping[str, object], known: Mapping[str, Setting], user: str) -> dict[str, object]:
    """Return changed values by full name, checked; raise ValueError, saying what is allowed, for a wrong one.

    **Arguments:**

    - `changes`: values by full name, such as `optimiser.lr`, or by key, such as `lr`, if only one table has it. A text
      is read as `override` reads it; None removes an optional setting.
    - `known`: the settings that apply, by full name.
    - `user`: what they are for, in messages, such as `jsb and lstm`.
    """
    values: dict[str, object] = {}
    for name, value in changes.items():
        setting = _find(name, known, user)
        option = setting.declared.option
        removed = isinstance(value, str) and value.lower() == "none" and "none" not in option.choices
        if value is None or removed:
            if setting.required:
                raise ValueError(f"{setting.name} ({option.about}) must have a value, got {value}")
            values[setting.name] = None
        else:
            parsed = _parsed(value, setting.declared) if isinstance(value, str) else value
            values[setting.name] = setting.check(parsed)
    return values


def all_settings() -> list[str]:
    """Return the full names of all settings that can be changed, of any kind of data and cell."""
    known = [setting for kind in KINDS for cell in cells() for setting in settings_of(kind, cell).values()]
    return list(dict.fromkeys(setting.name for setting in known if not setting.fixed))


def changed(config: Config, changes: Iterable[str]) -> set[str]:
    """Return the full names, such as `optimiser.lr`, of the settings that `override` would change."""
    names = [change.partition("=")[0].strip() for change in changes]
    return {_find(name, config.settings, _user(config)).name for name in names}


def _user(config: Config) -> str:
    return f"{config.task.name} and {config.model.cell}"


def _find(name: str, known: Mapping[str, Setting], user: str) -> Setting:
    """Find a setting by its full name, or by its key if only one table has it."""
    matching = [setting for full, setting in known.items() if name in (full, setting.declared.name)]
    if not matching:
        raise ValueError(unknown_setting(name, known, user))
    open_to_change = [setting for setting in matching if not setting.fixed]
    if not open_to_change:
        raise ValueError(f"{matching[0].name} cannot be changed: {matching[0].fixed}")
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
