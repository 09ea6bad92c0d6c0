"""`rru.fit` on a path, a table or a user's own model; and again, in the same folder."""

import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rru
from rru.data import DataError
from rru.training import Run, RunError
from rru.training import precision as precisions
from tests import own_files

INPUTS = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
TARGETS = INPUTS @ torch.arange(5.0)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))


def model(outputs=1):
    return nn.Sequential(nn.Linear(5, outputs), nn.Flatten(0), nn.Dropout(0.1))


def fit(folder="m", targets=TARGETS, seed=1, made=None, **more):
    """Fit a small model, in batches of random order."""
    torch.manual_seed(seed)
    made = made or model()
    loader = DataLoader(TensorDataset(INPUTS, targets), 8, shuffle=True)
    given = {"loss": F.mse_loss, "settings": {"lr": 0.05, "epochs": 3}, **more}
    return rru.fit(made, loader, loader, test=loader, folder=folder, **given)


class TestOwnModel:
    def test_the_same_call_loads_the_finished_run_and_says_so(self, capsys):
        first = fit()
        start = time.monotonic()
        second = fit(seed=2)  # other initial weights
        assert time.monotonic() - start < 2
        assert second.result == first.result
        assert all(map(torch.equal, first.model.parameters(), second.model.parameters()))
        assert "Sequential: already finished, loaded from m: finished, all 3 epochs are done" in capsys.readouterr().err
        fit(progress=False)
        assert not capsys.readouterr().err

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"targets": TARGETS.flip(0)}, r"other data \(train.content is \w+, not \w+; valid.content is"),
            ({"loss": F.l1_loss}, r"another loss or metric \(functions.loss is \S+mse_loss, not \S+l1_loss\)"),
            ({"metric": F.l1_loss}, r"other settings \(own_model.metric is loss, not metric\)"),
            ({"made": model(2)}, r"another model .*weights.0.weight is \(1, 5\) of float32, not \(2, 5\) of float32"),
            (
                {"made": nn.Sequential(nn.Linear(5, 1), nn.Flatten(0), nn.Dropout(0.2))},
                r"another model \(modules.2 is Dropout",
            ),
            ({"made": nn.Linear(5, 1)}, r"other settings \(model.cell is Sequential, not Linear\)"),
            (
                {"settings": {"epochs": 4}},
                r"other settings \(optimiser.lr is 0.05, not 0.003; schedule.epochs is 3, not",
            ),
        ],
    )
    def test_another_training_in_the_same_folder_is_refused(self, changes, message):
        fit()
        with pytest.raises(RunError, match=rf"m: holds a run with {message}.*; choose another folder, or remove this"):
            fit(**changes)

    def test_a_stopped_run_goes_on_to_the_same_weights_but_not_with_other_labels(self, capsys):
        whole, calls = fit("whole"), iter(range(100))
        assert fit("part", stop=lambda: next(calls) == 11).status == "stopped"
        with pytest.raises(RunError, match="part: holds a run with other data"):
            fit("part", targets=-TARGETS)
        again = fit("part", seed=5)
        assert "resuming after 12 steps" in capsys.readouterr().err
        assert again.test == whole.test
        assert all(map(torch.equal, again.model.parameters(), whole.model.parameters()))

    def test_rates_follow_the_schedule_over_the_batches_of_the_loader(self):
        settings = {"lr": 0.05, "epochs": 3, "decay": "linear", "warmup": 0.125, "log_steps": 1}
        fit("whole", settings=settings)
        lines = [line for line in Run("whole").metrics() if line["kind"] == "steps"]
        expected = [0.05 * share for share in (0.25, 0.5, 0.75, *(1 - step / 21 for step in range(21)))]
        assert [line["lr"] for line in lines] == pytest.approx(expected)  # 3 epochs of 8 batches
        calls = iter(range(100))
        assert fit("part", settings=settings, stop=lambda: next(calls) == 11).status == "stopped"
        assert fit("part", settings=settings).test == fit("whole", settings=settings).test
        with pytest.raises(ValueError, match=r"schedule\.decay must be 'none' or 'cosine' or 'linear', got 'cos'"):
            fit(settings={"decay": "cos"})

    def test_in_bfloat16_it_goes_on_to_the_same_weights(self, monkeypatch):
        monkeypatch.setattr(precisions, "multiplies_bfloat16", lambda device: True)
        plain, whole, calls = fit("plain"), fit("whole", precision="bf16"), iter(range(100))
        assert fit("part", precision="bf16", stop=lambda: next(calls) == 11).status == "stopped"
        again = fit("part", settings={"lr": 0.05, "epochs": 3, "precision": "bf16"})
        assert again.test == whole.test
        assert whole.test["loss"] != plain.test["loss"]
        assert whole.test["loss"] == pytest.approx(plain.test["loss"], rel=0.05)
        assert {each.dtype for each in whole.model.parameters()} == {torch.float32}

    def test_auto_takes_bfloat16_for_large_models_and_what_a_folder_has(self, monkeypatch):
        monkeypatch.setattr(precisions, "multiplies_bfloat16", lambda device: True)
        large = nn.Sequential(nn.Linear(5, 40_000), nn.Linear(40_000, 1), nn.Flatten(0))
        for name, made in {"small": None, "large": large}.items():
            fit(name, made=made, precision="auto", settings={"epochs": 1})
        assert [Run(name).tables["schedule"]["precision"] for name in ("small", "large")] == ["float32", "bf16"]
        monkeypatch.setattr(precisions, "multiplies_bfloat16", lambda device: False)
        assert fit("large", made=large, precision="auto", settings={"epochs": 1}).status == "finished"
        with pytest.raises(ValueError, match="precision must be one of float32, bf16, auto; got 'fp16'"):
            fit("other", precision="fp16")

    def test_a_setting_that_is_removed_has_its_default(self):
        first = fit(settings={"epochs": 1})
        again = fit(settings={"epochs": 1, "warmup": None, "ema": None})  # the same training
        assert again.result == first.result

    def test_a_run_of_a_version_without_a_setting_goes_on(self, tmp_path):
        fit()
        path = tmp_path / "m" / "config.toml"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.startswith(("decay", "warmup"))))
        assert len(path.read_text().splitlines()) == len(lines) - 2
        with pytest.raises(RunError, match=r"other settings \(schedule.decay is none, not cosine\)"):
            fit(settings={"lr": 0.05, "epochs": 3, "decay": "cosine"})
        assert fit().status == "finished"

    @pytest.mark.parametrize(
        ("inputs", "targets"),
        [(INPUTS, TARGETS[:, None]), (INPUTS[:, :3], TARGETS), (INPUTS, None)],
        ids=["shapes", "width", "no pairs"],
    )
    def test_a_call_that_fails_before_a_step_does_not_block_its_folder(self, tmp_path, inputs, targets):
        wrong = DataLoader(TensorDataset(*(part for part in (inputs, targets) if part is not None)), 8)
        (tmp_path / "m").mkdir()
        (tmp_path / "m" / "notes.txt").write_text("mine")
        with pytest.raises((RuntimeError, TypeError, ValueError, UserWarning)):
            rru.fit(model(), wrong, wrong, loss=F.mse_loss, folder="m")
        assert [path.name for path in (tmp_path / "m").iterdir()] == ["notes.txt"]
        assert fit().status == "finished"

    def test_a_run_without_a_step_is_replaced(self, tmp_path):
        def interrupt(event):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):  # as if killed: the folder keeps the run
            fit(targets=-TARGETS, watch=interrupt)
        assert (tmp_path / "m" / "config.toml").exists()
        assert fit().status == "finished"

    def test_what_it_returns_is_the_result_and_has_verbs(self):
        fitted = fit(metric=F.l1_loss)
        assert isinstance(fitted, rru.training.Result)
        assert fitted.status == "finished"
        assert fitted.predict(INPUTS).shape == (64,)
        assert not fitted.predict(INPUTS).requires_grad
        batches = [(INPUTS[:32], TARGETS[:32]), (INPUTS[32:], TARGETS[32:])]
        assert fitted.evaluate(batches) == pytest.approx(fitted.test, rel=1e-5)
        assert [epoch.epoch for epoch in fitted.history] == [0, 1, 2, 3]
        assert "<svg" in str(fitted.plot("metric"))
        assert len(repr(fitted)) < 400
        with pytest.raises(AttributeError, match="a model of your own has no 'compose'; it has predict, evaluate"):
            fitted.compose()

    def test_wrong_settings_and_arguments(self):
        with pytest.raises(ValueError, match=r"unknown key 'epoch'; did you mean schedule.epochs\?"):
            fit(settings={"epoch": 3})
        with pytest.raises(TypeError, match="fit has no argument 'horizont'; did you mean 'horizon'"):
            fit(horizont=3)
        with pytest.raises(TypeError, match=r"needs train and valid .*; missing: train, valid, loss and folder"):
            rru.fit(model())
        with pytest.raises(TypeError, match=r"; missing: loss$"):
            rru.fit(model(), [1], [1], folder="m")
        with pytest.raises(TypeError, match=r"task must be a model, got its class Linear; make one: Linear\(\.\.\.\)"):
            rru.fit(nn.Linear, [1], [1], folder="m", loss=F.mse_loss)

    def test_every_epoch_is_told(self):
        epochs = []
        fitted = fit(on_epoch=epochs.append)
        assert epochs == fitted.history[1:]
        fit(on_epoch=epochs.append)
        assert len(epochs) == 3


class TestData:
    @pytest.mark.parametrize(("precision", "expected"), [("bf16", "bf16"), ("auto", "float32"), (None, "float32")])
    def test_precision_is_a_setting_of_the_run(self, precision, expected, monkeypatch):
        monkeypatch.setattr(precisions, "multiplies_bfloat16", lambda device: True)
        trained = rru.fit("bach", preset="smoke", precision=precision, settings={"epochs": 1}, progress=False)
        assert Run(trained.path).config.schedule.precision == expected

    def test_a_path_is_recognised_and_short_settings_are_those_of_the_command(self, tmp_path):
        own_files.text(tmp_path / "novel.txt")
        for place in ("novel.txt", tmp_path / "novel.txt"):
            trained = rru.fit(place, preset="smoke", settings={"epochs": 1, "budget": "30k"})
            assert trained.kind == "characters"
            assert trained.config.schedule.epochs == 1
            assert trained.config.model.budget == 30_000
        words = rru.fit(
            "novel.txt", by="words", valid="novel.txt", preset="smoke", settings={"schedule.epochs": 1}, seed=3
        )
        assert words.kind == "words"
        assert words.config.data.valid == tmp_path / "novel.txt"
        assert words.config.schedule.seed == 3

    def test_a_name_of_the_catalogue_and_wrong_names(self, tmp_path):
        assert rru.fit("bach", preset="smoke", settings={"epochs": 1}).task == "bach"
        with pytest.raises(DataError, match=r"nvel\.txt: does not exist"):
            rru.fit("nvel.txt")
        with pytest.raises(ValueError, match=r"task must be a file or folder, or one of bach.*; did you mean 'bach'\?"):
            rru.fit("bahc")
        with pytest.raises(TypeError, match="horizon is only for a file, a folder or a DataFrame, not for bach"):
            rru.fit("bach", horizon=3)
        own_files.text(tmp_path / "novel.txt")
        with pytest.raises(TypeError, match=r"by is only for a file, .* not for data that was read already"):
            rru.fit(rru.data.from_text("novel.txt"), by="words")
        with pytest.raises(TypeError, match=r"no argument 'epochs'; a setting is given as settings=\{'epochs': 3\}"):
            rru.fit("novel.txt", epochs=3)
        with pytest.raises(ValueError, match=r"^horizon is not for text by characters such as novel"):
            rru.fit("novel.txt", horizon=3)
        with pytest.raises(TypeError, match=r"task must be a model, a file or folder, .*; got int"):
            rru.fit(3)

    def test_what_was_understood_is_printed_once(self, tmp_path, capsys):
        own_files.text(tmp_path / "novel.txt")
        options = {"preset": "smoke", "settings": {"epochs": 1}}
        rru.fit("novel.txt", **options)
        shown = capsys.readouterr().err
        assert shown.count("novel.txt: text by characters; ") == 1
        assert "novel: preset smoke: context=" in shown
        rru.fit("novel.txt", **options, progress=False)
        assert not capsys.readouterr().err

    def test_transpose_is_that_of_the_command(self, tmp_path):
        own_files.pieces(tmp_path / "midi")
        trained = rru.fit("midi", transpose=3, grid=1, preset="smoke", settings={"epochs": 1})
        assert trained.config.task.transposition == 3

    def test_a_text_instead_of_a_path(self):
        for text in ("Call me Ishmael. " * 100, "It was\nthe best of times."):
            with pytest.raises(
                ValueError, match=r"task must be a file or .*; got a text of .* write it to one, and give"
            ):
                rru.fit(text)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"horizon": "24"}, "horizon must be a whole number, got '24' of type str"),
            ({"horizon": 2.5}, "horizon must be a whole number, got 2.5 of type float"),
            ({"columns": ["a,b"]}, "columns must be one or more names of columns, without commas in them"),
            ({"columns": 3}, "columns must be one or more names"),
            ({"valid": 5}, "valid must be a file or folder; beside a DataFrame also a DataFrame; got int"),
            ({"season": True}, "season must be a whole number, got True"),
        ],
    )
    def test_wrong_options_of_reading_are_named(self, options, message):
        with pytest.raises((TypeError, ValueError), match=message):
            rru.fit({"load": np.arange(90.0)}, **{"target": "load", "horizon": 3, **options})

    def test_lists_of_columns(self):
        days = np.arange("2026-01-01", "2026-04-01", dtype="datetime64[D]")
        frame = {"day": days, "load": np.arange(90) % 7, "temp": np.arange(90) % 5, "price": np.arange(90) % 3}
        frame["wind"] = np.arange(90) % 4
        options = {"target": "load", "horizon": np.int64(3)}
        listed = rru.data.from_frame(frame, columns=["temp", "wind"], known=("price",), **options)
        assert listed.options == rru.data.from_frame(frame, columns="temp,wind", known="price", **options).options
        assert listed.facts == rru.data.from_frame(frame, columns="temp,wind", known="price", **options).facts

    def test_a_table_in_memory_has_a_name_and_errors_name_it_and_its_rows(self, tmp_path):
        frame = {"note": ["two\nlines"] * 90, "load": [str(number % 7) for number in range(90)]}
        options = {"target": "load", "horizon": 3, "preset": "smoke", "settings": {"epochs": 1}}
        trained = rru.fit(frame, name="Power use", **options)
        assert trained.task == "power-use"
        assert trained.path.parts[:2] == ("runs", "power-use")
        frame["load"][4] = "x"
        with pytest.raises(DataError, match=r"^the DataFrame, row 5: column 'load' must have numbers, got 'x'"):
            rru.fit(frame, **options)
        with pytest.raises(DataError, match=r"^the DataFrame: has no column 'nothing'"):
            rru.fit(frame, **{**options, "target": "nothing"})
        with pytest.raises(DataError, match=r"^the DataFrame: is a table with the columns note, load; say what to do"):
            rru.fit(frame)
        with pytest.raises(ValueError, match=r"horizon is not for a table without target such as the DataFrame$"):
            rru.fit(frame, horizon=3)
        with pytest.raises(ValueError, match=r"name must be up to 60 letters, .*; got '../x'"):
            rru.fit(frame, name="../x", **options)
        own_files.text(tmp_path / "novel.txt")
        with pytest.raises(TypeError, match=r"name is only for a DataFrame; .* named after it, novel\.txt"):
            rru.fit("novel.txt", name="mine")

    def test_a_table_in_memory(self):
        frame = {"day": np.arange("2026-01-01", "2026-04-01", dtype="datetime64[D]"), "load": np.arange(90) % 7}
        options = {"target": "load", "horizon": 3, "preset": "smoke", "settings": {"epochs": 1}}
        trained = rru.fit(frame, folder="m", **options)
        assert trained.config.data.path.exists()
        assert "every day from 2026-01-01 to 2026-03-31, season 7" in trained.facts.summary
        assert rru.fit(frame, folder="m", **options).result == trained.result
        with pytest.raises(RunError, match="m: holds a run with other settings"):
            rru.fit({**frame, "load": np.arange(90) % 5}, folder="m", **options)

    def test_the_end_of_each_epoch_can_be_watched_and_stopping_there_loses_nothing(self, tmp_path):
        own_files.text(tmp_path / "novel.txt")

        def interrupt(epoch):
            if epoch.epoch == 2:
                raise KeyboardInterrupt

        settings = {"epochs": 3}
        with pytest.raises(KeyboardInterrupt):
            rru.fit("novel.txt", preset="smoke", settings=settings, folder="part", on_epoch=interrupt)
        epochs = []
        part = rru.fit("novel.txt", preset="smoke", settings=settings, folder="part", on_epoch=epochs.append)
        assert [epoch.epoch for epoch in epochs] == [3]
        assert part.result.test == rru.fit("novel.txt", preset="smoke", settings=settings, folder="whole").result.test
