"""Describe the settings that a preset chose, in a line."""

from rru.settings.config import Config

SHOWN = (
    "output", "bar", "context", "batch_size", "stateful", "transposition", "budget", "embedding_size", "dropout", "lr",
    "epochs", "patience", "decay", "warmup", "precision", "patch", "ensemble",
)  # fmt: skip


def described(config: Config, preset: str) -> str:
    """Return the settings of a preset that depend on the data, for people."""
    chosen = [
        f"{name}={value:,}" if type(value) is int else f"{name}={value}"
        for table in ("task", "model", "optimiser", "schedule")
        for name, value in config.tables()[table].items()
        if name in SHOWN
    ]
    return f"preset {preset}: {', '.join(chosen)}"
