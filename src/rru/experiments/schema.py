"""What a config may hold: every key of its four tables, what it means, and which values are right.

A config is a dict of the tables `task`, `model`, `optimiser` and `schedule`, each a dict of plain values.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rru import data
from rru.experiments import own

Config = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Key:
    """A key of a config.

    **Arguments:**

    - `kind`: int, float, bool or str.
    - `about`: what it means, in a few words.
    - `least`, `most`, `below`, `above`: bounds of a number; `least` and `most` may be reached, the others not.
    - `words`: the strings allowed; for a float, allowed beside numbers.
    - `optional`: whether a config may do without it.
    - `only`: the cells, or the kinds of data, that know it; none: all.
    - `chosen`: whether the preset's name decides it, so that it cannot be overridden.
    - `inert`: whether a run comes to the same result whatever it is.
    """

    kind: type
    about: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    words: tuple[str, ...] = ()
    optional: bool = False
    only: tuple[str, ...] = ()
    chosen: bool = False
    inert: bool = False


_LANGUAGE = ("words", "characters", "bytes")

KEYS: dict[str, dict[str, Key]] = {
    "task": {
        "name": Key(str, "the data set", words=tuple(data.CATALOGUE), chosen=True),
        "context": Key(int, "the most steps run over at once", least=1),
        "batch_size": Key(int, "sequences in a batch", least=1),
        "stateful": Key(bool, "whether training carries the state on", only=_LANGUAGE),
        "line_ends": Key(bool, "whether a line's end is a word", only=("words",), optional=True),
        "limit": Key(int, "the most pieces, tokens, reviews or images to train on", least=1, optional=True),
        "evaluation_limit": Key(int, "the most of them to validate and to test on", least=1, optional=True),
    },
    "model": {
        "cell": Key(str, "the recurrent cell", chosen=True),
        "budget": Key(int, "the most parameters the whole model may have", least=1),
        "num_layers": Key(int, "layers stacked on one another", least=1),
        "dropout": Key(float, "recurrent dropout", least=0, below=1),
        "embedding_size": Key(int, "features of a token", least=1, only=(*_LANGUAGE, "reviews")),
        "output_size": Key(int, "p, features of an output step", least=1, only=("rru",)),
        "expansion": Key(float, "q, the middle layer's size multiplier", above=0, only=("rru",)),
        "relu_layers": Key(int, "ReLU layers, Eq. 1 being the first", least=1, only=("rru",)),
        "normalize": Key(bool, "whether Eq. 1 normalises", only=("rru",), optional=True),
        "rezero": Key(str, "what Z is", words=("vector", "scalar"), only=("rru",), optional=True),
        "residual": Key(
            float, "sigmoid(S)", above=0, below=1, words=("learned", "unscaled"), only=("rru",), optional=True
        ),
        "activate_outputs": Key(bool, "ReLU over c and o", only=("rru",), optional=True),
        "reset_after": Key(bool, "resets after the product, as torch does", only=("gru",), optional=True),
        "forget_bias": Key(float, "added to the forget gate", only=("lstm",)),
        "rounds": Key(int, "feature mask rounds", least=0, only=("mogrifier",)),
        "rank": Key(int, "feature mask rank; 0: full", least=0, only=("mogrifier",)),
    },
    "optimiser": {
        "name": Key(str, "radam is the paper's", words=("radam", "torch-radam", "adamw")),
        "lr": Key(float, "learning rate", above=0, most=10),
        "beta1": Key(float, "how much momentum is kept", least=0, below=1),
        "beta2": Key(float, "how much of the second moment is kept", least=0, below=1),
        "eps": Key(float, "added to the second moment's root", above=0),
        "weight_decay": Key(float, "decoupled weight decay; not for radam", least=0, optional=True),
        "clipping": Key(
            str, "of gradients: each tensor's by its own past, or the norm of all", words=("adaptive", "norm", "none")
        ),
        "clip": Key(float, "adaptive: the multiplier; norm: the largest norm", above=0),
    },
    "schedule": {
        "patience": Key(int, "epochs without a better validation before training ends", least=1),
        "epochs": Key(int, "epochs after which it ends in any case", least=1),
        "seed": Key(int, "of initial weights, order and dropout", least=0, most=2**63 - 1),
        "log_steps": Key(int, "steps between two lines of the log", least=0, optional=True, inert=True),
        "checkpoint_steps": Key(int, "steps between two checkpoints", least=0, optional=True, inert=True),
        "checkpoint_seconds": Key(float, "seconds between them", least=0, optional=True, inert=True),
    },
}


def known_keys(config: Mapping[str, Mapping[str, Any]]) -> dict[str, Key]:
    """The keys a config of this task and cell may have, as `table.key`, in order."""
    task, cell = config["task"]["name"], config["model"]["cell"]
    who = {cell, data.entry(task).kind}
    known = {
        f"{table}.{name}": key
        for table, keys in KEYS.items()
        for name, key in keys.items()
        if not key.only or who & set(key.only)
    }
    own_keys = {f"model.{name}": Key(kind, f"{cell}'s own", optional=True) for name, kind in own.options(cell).items()}
    return known | own_keys


def checked(config: Mapping[str, Any]) -> Config:
    """A config with every value checked and of its right type, keys in order; a ValueError names what is wrong.

    **Arguments:** `config`: tables by name; a table that is not there counts as empty.
    """
    for table, values in config.items():
        if table not in KEYS:
            raise ValueError(f"tables of a config must be {', '.join(KEYS)}; got {table!r}{did_you_mean(table, KEYS)}")
        if not isinstance(values, Mapping):
            raise ValueError(f"{table} must be a table of settings, got {values!r}")
    given = {f"{table}.{name}": value for table, values in config.items() for name, value in values.items()}
    for name in ("task.name", "model.cell"):
        if name not in given:
            raise ValueError(f"a config must have {name}, got none")
        table, _, short = name.partition(".")
        check_value(name, KEYS[table][short], given[name])
    cell = given["model.cell"]
    if cell not in own.cells():
        hint = did_you_mean(cell, own.cells())
        raise ValueError(
            f"model.cell must be {' or '.join(map(repr, own.cells()))}, or one of a file named by "
            f"`rru --cells FILE ...`; got {cell!r}{hint}"
        )
    known = known_keys(config)
    for name in given:
        if name not in known:
            raise ValueError(unknown_key(name, config))
    result: Config = {table: {} for table in KEYS}
    for name, key in known.items():
        table, _, short = name.partition(".")
        if name in given:
            result[table][short] = check_value(name, key, given[name])
        elif not key.optional:
            raise ValueError(f"a config must have {name} ({key.about}), got none")
    _check_together(result["optimiser"])
    return result


def _check_together(optimiser: Mapping[str, Any]) -> None:
    if optimiser["clipping"] == "adaptive" and optimiser["name"] != "radam":
        raise ValueError(
            f"optimiser.clipping must be 'norm' or 'none' with optimiser.name = {optimiser['name']!r}: "
            "only 'radam' clips adaptively"
        )
    if optimiser.get("weight_decay", 0) and optimiser["name"] == "radam":
        raise ValueError(f"optimiser.weight_decay must be 0 with 'radam', got {optimiser['weight_decay']}")


def check_value(name: str, key: Key, value: Any) -> Any:
    """The value as its key's type; a ValueError says what would be right."""
    if key.words and isinstance(value, str):
        if value not in key.words:
            number = "a number, " if key.kind is float else ""
            hint = did_you_mean(value, key.words)
            raise ValueError(f"{name} must be {number}{' or '.join(map(repr, key.words))}; got {value!r}{hint}")
        return value
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and abs(value) >= 2**63:  # further than torch and floats count
        raise ValueError(f"{name} must be {_named(key)}, below 2**63; got {value}")
    if key.kind is float and (whole or isinstance(value, float)):
        value = float(value)
    elif not (whole if key.kind is int else type(value) is key.kind):
        raise ValueError(f"{name} must be {_named(key)}, got {value!r}")
    if key.kind in (int, float) and not _within(key, value):
        raise ValueError(f"{name} must be {_named(key)}, got {value}")
    return value


def _within(key: Key, value: float) -> bool:
    return (
        math.isfinite(value)
        and (key.least is None or value >= key.least)
        and (key.most is None or value <= key.most)
        and (key.above is None or value > key.above)
        and (key.below is None or value < key.below)
    )


def _named(key: Key) -> str:
    """What values of a key are, in words."""
    kind = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}[key.kind]
    bounds = {"at least": key.least, "above": key.above, "at most": key.most, "below": key.below}
    return " ".join(
        [kind, " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None)]
    ).strip()


def unknown_key(name: str, config: Mapping[str, Mapping[str, Any]]) -> str:
    """What to say of a key that a config does not know."""
    task, cell = config["task"]["name"], config["model"]["cell"]
    known = known_keys(config)
    table, _, short = name.rpartition(".")
    key = KEYS.get(table, {}).get(short) or next((keys[name] for keys in KEYS.values() if name in keys), None)
    if key:
        return f"{name} is only for {', '.join(key.only)}; the config is of {task} and {cell}"
    shorts = {one.partition(".")[2]: one for one in known}
    close = difflib.get_close_matches(name, known, n=1)
    close += [shorts[one] for one in difflib.get_close_matches(short, shorts, n=1)]
    hint = f"did you mean {close[0]}? " if close else ""
    return f"no key is named {name!r}; {hint}Known: {', '.join(known)}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'jsb'?`, or nothing where nothing is like it."""
    close = difflib.get_close_matches(str(word).lower().replace("_", "-"), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
