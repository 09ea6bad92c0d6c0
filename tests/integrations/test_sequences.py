import numpy as np
import pytest
import torch

import rru
from rru.integrations.sequences import _held_out, fit_classes, fit_numbers


def waves(count, seed=0):
    """Sequences of 8 to 12 steps with two features, and which of two shapes they have."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    lengths = generator.integers(8, 13, count)
    contents = [
        np.stack([np.sin((1 + label) * np.arange(length)), generator.normal(size=length)], axis=1) + 5
        for label, length in zip(labels, lengths, strict=True)
    ]
    return contents, labels


def table(contents, labels, numbers):
    rows = [
        (number, step, *values, labels[number]) for number in numbers for step, values in enumerate(contents[number])
    ]
    return dict(
        zip(("id", "t", "a", "b", "kind"), (np.array(column) for column in zip(*rows, strict=True)), strict=True)
    )


def test_training_is_that_of_fit(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    contents, labels = waves(40)
    fitted = fit_classes(contents, labels, "rru", {"epochs": 3}, seed=5)
    held = [n for n in range(40) if n not in chosen(contents, labels)]
    reading = {"label": "kind", "sequence": "id", "time": "t"}
    splits = {split: table(contents, labels, held) for split in ("valid", "test")}
    trained = rru.fit(
        table(contents, labels, chosen(contents, labels)),
        **splits,
        **reading,
        settings={"epochs": 3},
        seed=5,
        folder=tmp_path / "run",
        progress=False,
    )
    for name, weight in trained.model.state_dict().items():
        torch.testing.assert_close(fitted.model.state_dict()[name].float(), weight)


def chosen(contents, labels):
    """The sequences that an estimator trains on."""
    return np.flatnonzero(~_held_out(contents, [str(label) for label in labels])).tolist()


def test_a_prediction_does_not_depend_on_what_is_predicted_along_with_it():
    contents, labels = waves(24)
    fitted = fit_classes(contents, labels, "gru", {"epochs": 1}, seed=0)
    alone = np.concatenate([fitted.outputs([each]) for each in contents])
    np.testing.assert_allclose(fitted.outputs(contents), alone, rtol=1e-12)


def test_numbers_are_learnt():
    contents, _ = waves(60)
    targets = np.array([each[-1] for each in contents], np.float32) - 5  # both features of the last step
    fitted = fit_numbers(contents, targets, "rru", {"epochs": 30, "lr": 0.02}, seed=0)
    assert np.square(fitted.outputs(contents) - targets).mean() < 0.5 * targets.var()


@pytest.mark.parametrize("count", [2, 19, 20])
def test_few_sequences_are_all_trained_on(count):
    contents, labels = waves(count)
    assert len(chosen(contents, labels)) == (count if count < 20 else 18)


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("RRU_CACHE_DIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = torch.random.get_rng_state()
    contents, labels = waves(10)
    fit_classes(contents, labels, "rru", {"epochs": 1}, seed=0)
    assert {path.name for path in tmp_path.rglob("*")} == {"RRU_CACHE_DIR", "TMPDIR"}
    assert torch.equal(torch.random.get_rng_state(), before)


def test_wrong_settings_are_named():
    contents, labels = waves(10)
    with pytest.raises(ValueError, match="did you mean"):
        fit_classes(contents, labels, "rru", {"epoch": 1}, seed=0)
