"""scikit-learn estimators: classify sequences, or predict numbers from them.

```
from rru.integrations.sklearn import RRUClassifier

classifier = RRUClassifier(random_state=0).fit(sequences, labels)  # (n, steps, features), (n,)
chances = classifier.predict_proba(sequences)  # (n, classes)
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rru.data.own.scaling import ColumnScale
from rru.extras import extra
from rru.integrations.sequences import Contents, SequenceFit, fit_classes, fit_numbers

with extra("sklearn"):
    from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

MAX_SEED = 2**31 - 1
SETTINGS = ("epochs", "lr", "dropout", "num_layers", "budget")
"""The settings that are parameters of their own, for searches such as GridSearchCV."""


class _SequenceEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor have in common."""

    _steps_are_features: bool

    def __init__(
        self,
        cell: str = "rru",
        *,
        epochs: int | None = None,
        lr: float | None = None,
        dropout: float | None = None,
        num_layers: int | None = None,
        budget: int | None = None,
        settings: Mapping[str, object] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.cell = cell
        self.epochs = epochs
        self.lr = lr
        self.dropout = dropout
        self.num_layers = num_layers
        self.budget = budget
        self.settings = settings
        self.random_state = random_state

    def _changes(self) -> dict[str, object]:
        given = {name: getattr(self, name) for name in SETTINGS}
        changes = {name: value for name, value in given.items() if value is not None} | dict(self.settings or {})
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in changes.items()}

    def _seed(self) -> int:
        """Return the seed of training: `random_state` if it is a number, so that `rru.fit(seed=...)` is the same."""
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(MAX_SEED))

    def _contents(self, X: Any, *, reset: bool) -> Contents:
        """Return the sequences (steps, features) of an array or a list of arrays."""
        if is_list_of_sequences(X):
            contents = [_sequence(each) for each in X]
            sizes = {each.shape[1] for each in contents}
            if len(sizes) > 1:
                raise ValueError(f"all sequences must have the same number of features, got {sorted(sizes)}")
            self._check_features(sizes.pop(), reset=reset)
            return contents
        dimensions = X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim
        if dimensions < 3 and (reset or self._steps_are_features):
            array = validate_data(self, X, reset=reset, **_CHECKS)
            self._steps_are_features = True
            return list(array[..., None])
        array = check_array(X, estimator=self, input_name="X", **_CHECKS)
        array = array[..., None] if dimensions < 3 else array
        if dimensions > 3:
            raise ValueError(f"X must be (n, steps, features) or (n, steps), got {dimensions} dimensions")
        if 0 in array.shape:
            raise ValueError(f"X must have at least one step and feature, got shape {array.shape}")
        self._check_features(array.shape[2], reset=reset)
        return list(array)

    def _check_features(self, features: int, *, reset: bool) -> None:
        """Keep or compare the number of features of each step.

        Of an array (n, steps) to fit, the steps are what scikit-learn calls features, and their number must not change.
        """
        if reset:
            self.n_features_in_, self._steps_are_features = features, False
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit to a table
        elif features != (expected := len(self.fit_.scale.mean)):
            raise ValueError(f"X has {features} features, but {type(self).__name__} is expecting {expected} features")

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        fitted: SequenceFit = self.fit_
        return fitted.outputs(self._contents(X, reset=False))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags


_CHECKS: Mapping[str, Any] = {"allow_nd": True, "dtype": np.float64, "ensure_all_finite": "allow-nan"}


class RRUClassifier(ClassifierMixin, _SequenceEstimator):  # type: ignore[misc]
    """Classify sequences.

    **Arguments:**

    - `cell`: `rru`, `gru`, `lstm` or `mogrifier`.
    - `epochs`, `lr`, `dropout`, `num_layers`, `budget` (of parameters): settings of training and model. Default: chosen
      by the size of the data, as `rru train` does.
    - `settings`: further settings by name, as for `rru.fit`.
    - `random_state`: random seed, or a generator to draw it from. With a seed, fits repeat exactly.

    X is an array (n, steps, features), a list of arrays (steps, features), which may differ in length, or an array
    (n, steps) of sequences with one feature. NaN is a missing value. A tenth of the sequences is held out to choose the
    best epoch, unless there are fewer than 20.
    """

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Train on sequences and their classes (n,)."""
        contents = self._contents(X, reset=True)
        labels = _column(self, y, len(contents))
        check_classification_targets(labels)
        self.classes_, indices = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"{type(self).__name__} needs at least two classes, got 1 class: {self.classes_[0]!r}")
        self.fit_ = fit_classes(contents, indices.astype(np.int64), self.cell, self._changes(), self._seed())
        self.n_iter_ = self.fit_.result.epochs
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each of `classes_`, (n, classes)."""
        outputs = self._outputs(X)
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class of each sequence, (n,)."""
        outputs = self._outputs(X)
        return np.asarray(self.classes_[outputs.argmax(axis=1)])


class RRURegressor(RegressorMixin, MultiOutputMixin, _SequenceEstimator):  # type: ignore[misc]
    """Predict numbers from sequences.

    **Arguments:** as for `RRUClassifier`.
    """

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Train on sequences and their numbers, (n,) or (n, numbers)."""
        contents = self._contents(X, reset=True)
        numbers = _numbers(self, y, len(contents))
        self.target_scale_ = ColumnScale.of(numbers.reshape(len(numbers), -1))
        scaled = self.target_scale_.apply(numbers.reshape(len(numbers), -1))  # (n, numbers)
        self.fit_ = fit_numbers(contents, scaled, self.cell, self._changes(), self._seed())
        self.n_iter_, self._one_number = self.fit_.result.epochs, numbers.ndim == 1
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the numbers of each sequence, of the shape of `y` in `fit`."""
        outputs = self._outputs(X)
        numbers = outputs * np.array(self.target_scale_.deviation) + np.array(self.target_scale_.mean)
        return np.asarray(numbers[:, 0] if self._one_number else numbers)


def is_list_of_sequences(X: Any) -> bool:
    """Return whether something is a list of arrays (steps, features), or of arrays (steps,) that differ in length.

    An array of objects (n,) is taken as a list.
    """
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1:
        return is_list_of_sequences(list(X))
    if not isinstance(X, list | tuple) or not X or not all(hasattr(each, "shape") for each in X):
        return False
    dimensions = {len(each.shape) for each in X}
    return dimensions == {2} or (dimensions == {1} and len({each.shape for each in X}) > 1)


def _sequence(given: Any) -> NDArray[np.float64]:
    """Return a sequence (steps, features) of a list; raise ValueError if it is empty or not finite."""
    array = np.asarray(given, np.float64)
    array = array[:, None] if array.ndim == 1 else array
    if 0 in array.shape:
        raise ValueError(f"every sequence must have at least one step and feature, got shape {array.shape}")
    if np.isinf(array).any():
        raise ValueError("sequences must be finite or NaN, got infinity")
    return array


def _column(estimator: BaseEstimator, y: Any, count: int) -> NDArray[Any]:
    labels = column_or_1d(_required(estimator, y), warn=True)
    return _as_many(labels, count)


def _numbers(estimator: BaseEstimator, y: Any, count: int) -> NDArray[np.float64]:
    given = _required(estimator, y)
    array = check_array(given, ensure_2d=False, dtype=np.float64, input_name="y")
    if array.ndim > 2:
        raise ValueError(f"y must be (n,) or (n, numbers), got {array.ndim} dimensions")
    return _as_many(column_or_1d(array, warn=True) if array.ndim == 2 and array.shape[1] == 1 else array, count)


def _required(estimator: BaseEstimator, y: Any) -> Any:
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    return y


def _as_many(y: NDArray[Any], count: int) -> NDArray[Any]:
    if len(y) != count:
        raise ValueError(f"X and y must have as many rows, got {count} and {len(y)}")
    return y
