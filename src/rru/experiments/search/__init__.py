"""Hyperparameter search: Optuna proposes trials, and each trial is an ordinary run."""

import importlib

from rru.extras import extra

with extra("train"):
    importlib.import_module("optuna")  # here, so that any import from this package says what to install
