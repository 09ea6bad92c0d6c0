"""Write tables of plain values as TOML, which the standard library can only read."""

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

Tables = dict[str, Any]
"""Tables by name, each a dict of strings, numbers, bools or lists of these. Plain values are allowed at the top."""
MAX_SHOWN = 80  # characters of a value


def dumps(config: Mapping[str, object]) -> str:
    """Return the config as TOML; raise ValueError if it would not read back as the same values and types."""
    plain = [(key, value) for key, value in config.items() if not isinstance(value, Mapping)]
    tables = [(key, value) for key, value in config.items() if isinstance(value, Mapping)]
    parts = ["".join(_line(key, value, key) for key, value in plain)]
    for name, table in tables:
        parts.append(f"[{_key(name)}]\n" + "".join(_line(key, value, f"{name}.{key}") for key, value in table.items()))
    text = "\n".join(part for part in parts if part)
    if not same(tomllib.loads(text.encode().decode()), config):  # encoding fails for lone surrogates
        raise ValueError(f"config cannot be written as TOML, got {dict(config)!r}")
    return text


def same(first: Mapping[str, object], second: Mapping[str, object]) -> bool:
    """Return whether two configs have the same values and types: 1, 1.0 and true differ."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def differences(first: Mapping[str, object], second: Mapping[str, object]) -> str:
    """Describe how two configs differ: the first three differences and the number of others; empty if equal."""
    old, new = _flat(first), _flat(second)
    pairs = {name: (old.get(name), new.get(name)) for name in (*old, *new)}
    differ = [f"{name} is {_cut(had)}, not {_cut(has)}" for name, (had, has) in pairs.items() if had != has]
    more = f" and {len(differ) - 3} more" if len(differ) > 3 else ""
    return "; ".join(differ[:3]) + more


def _flat(config: Mapping[str, object]) -> dict[str, object]:
    """Return the values by full name. A table of a file that someone else wrote may be a plain value."""
    tables = {name: value if isinstance(value, Mapping) else {"": value} for name, value in config.items()}
    return {f"{table}.{name}".rstrip("."): value for table, values in tables.items() for name, value in values.items()}


def _cut(value: object) -> str:
    if value is None:
        return "left out"
    return f"{text[:MAX_SHOWN]}..." if len(text := str(value)) > MAX_SHOWN else text


def _line(key: str, value: object, place: str) -> str:
    return f"{_key(key)} = {_value(value, place)}\n"


def _key(key: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"keys of a config must be strings, got {key!r}")
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key, key)


def _value(value: object, place: str) -> str:
    if type(value) in (bool, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")  # TOML has the escapes of JSON
    if type(value) in (int, float):
        return repr(value)  # the shortest digits that read back as the same number
    if type(value) is list:
        return "[" + ", ".join(_value(entry, place) for entry in value) + "]"
    raise TypeError(f"{place} must be a string, number, bool or a list of these, got {value!r}")
