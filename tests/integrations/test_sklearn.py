import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from rru.integrations.sklearn import RRUClassifier, RRURegressor
from tests.integrations.test_sequences import waves

pytestmark = pytest.mark.filterwarnings("ignore:Skipping check")
EXPECTED_FAILURES: dict[str, str] = {}
"""scikit-learn's checks that the estimators do not pass, and why: none."""
SHORT = (
    "check_complex_data",
    "check_dtype_object",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_subset_invariance",
    "check_n_features_in",
    "check_no_attributes_set_in_init",
    "check_supervised_y_2d",
)
CHECKS = [
    pytest.param(
        *pair,
        id=f"{type(pair[0]).__name__}-{getattr(pair[1], 'func', pair[1]).__name__}",
        marks=[] if getattr(pair[1], "func", pair[1]).__name__ in SHORT else [pytest.mark.slow],
    )
    for estimator in (
        RRUClassifier(epochs=15, lr=0.02, settings={"batch_size": 32}),
        RRURegressor(epochs=60, lr=0.02),
    )
    for pair in estimator_checks_generator(estimator, expected_failed_checks=EXPECTED_FAILURES, mark=None)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_check_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    contents, labels = waves(40)
    return np.stack([each[:8] for each in contents]), np.where(labels, "fast", "slow")


def test_arrays_and_lists_of_arrays_give_the_same(data):
    sequences, labels = data
    quick = RRUClassifier(epochs=2, random_state=0)
    array, of_list = clone(quick).fit(sequences, labels), clone(quick).fit(list(sequences), labels)
    np.testing.assert_array_equal(array.predict_proba(sequences), of_list.predict_proba(list(sequences)))


def test_sequences_of_different_lengths_are_classified():
    contents, labels = waves(60)
    classifier = RRUClassifier(random_state=0, epochs=40).fit(contents, labels)
    assert classifier.score(contents, labels) > 0.9
    np.testing.assert_allclose(classifier.predict_proba(contents).sum(axis=1), 1)


def test_a_fit_repeats_and_pickles(data):
    sequences, labels = data
    first, again = (RRUClassifier(epochs=2, random_state=7).fit(sequences, labels) for _ in range(2))
    other = RRUClassifier(epochs=2, random_state=8).fit(sequences, labels)
    chances = first.predict_proba(sequences)
    np.testing.assert_array_equal(again.predict_proba(sequences), chances)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).predict_proba(sequences), chances)
    assert not np.array_equal(other.predict_proba(sequences), chances)


def test_searches_and_pipelines(data):
    sequences, labels = data
    search = GridSearchCV(RRUClassifier(random_state=0), {"epochs": [1, 2], "cell": ["rru", "lstm"]}, cv=2)
    search.fit(list(sequences), labels)
    assert set(search.best_params_) == {"epochs", "cell"}
    pipeline = make_pipeline(StandardScaler(), RRURegressor(epochs=1)).fit(sequences[..., 0], sequences[:, -1, 1])
    assert pipeline.predict(sequences[..., 0]).shape == (40,)


def test_several_numbers_are_predicted_in_their_units(data):
    sequences, _ = data
    targets = 1000 + 100 * sequences[:, -1]  # (40, 2)
    regressor = RRURegressor(epochs=60, lr=0.02, random_state=0).fit(sequences, targets)
    assert regressor.predict(sequences).shape == (40, 2)
    assert regressor.score(sequences, targets) > 0.5


def test_wrong_input_is_named(data):
    sequences, labels = data
    classifier = RRUClassifier(epochs=1).fit(sequences, labels)
    with pytest.raises(ValueError, match="X has 1 features, but RRUClassifier is expecting 2 features"):
        classifier.predict(sequences[..., :1])
    with pytest.raises(ValueError, match="as many rows, got 40 and 39"):
        classifier.fit(sequences, labels[:-1])
    with pytest.raises(ValueError, match=r"same number of features, got \[1, 2\]"):
        classifier.fit([np.zeros((3, 1)), np.zeros((4, 2))], ["a", "b"])
    with pytest.raises(ValueError, match="got infinity"):
        classifier.predict([np.full((3, 2), np.inf)])


def test_one_feature_may_be_left_out_of_the_shape(data):
    sequences, labels = data[0][..., :1], data[1]
    forms = sequences, sequences[..., 0], list(sequences), [sequences[0, :5, 0], *sequences[1:, :, 0]]
    for fitted_to in forms:
        classifier = RRUClassifier(epochs=1, random_state=0).fit(fitted_to, labels)
        for form in forms[:3]:
            np.testing.assert_array_equal(classifier.predict_proba(form), classifier.predict_proba(sequences))
    with pytest.raises(ValueError, match="X has 1 features, but RRUClassifier is expecting 2 features"):
        RRUClassifier(epochs=1).fit(*data).predict(data[0][..., 0])


def test_an_array_of_arrays_is_taken_as_a_list():
    contents, labels = waves(20)
    array = np.empty(20, object)
    array[:] = contents
    classifier = RRUClassifier(epochs=1, random_state=0).fit(array, labels)
    np.testing.assert_array_equal(classifier.predict_proba(array), classifier.predict_proba(contents))


def test_searches_draw_settings_as_numbers_of_numpy(data):
    search = GridSearchCV(
        RRUClassifier(random_state=0), {"epochs": np.arange(1, 3), "lr": np.logspace(-3, -2, 2)}, cv=2
    )
    assert search.fit(*data).best_params_["epochs"] in (1, 2)


def test_names_of_columns_are_those_of_the_last_fit(data):
    sequences, labels = data
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame(sequences[..., 0]).rename(columns=str)
    classifier = RRUClassifier(epochs=1).fit(table, labels)
    assert classifier.feature_names_in_.tolist() == [str(step) for step in range(8)]
    assert not hasattr(classifier.fit(sequences, labels), "feature_names_in_")
