"""Settings of a run: typed, frozen configs, checked when they are made, and presets (one TOML file per task)."""

from rru.settings.config import Config

__all__ = ["Config"]
