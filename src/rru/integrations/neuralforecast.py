"""A model for neuralforecast, on its base class: exogenous variables, losses and cross-validation as for its GRU.

```
from neuralforecast import NeuralForecast
from rru.integrations.neuralforecast import RRU

forecaster = NeuralForecast(models=[RRU(h=12, input_size=48)], freq="ME")
forecaster.fit(frame)  # unique_id, ds, y
forecaster.predict()
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.extras import extra
from rru.integrations.network import NetworkOptions, WindowNetwork, window_shape

with extra("neuralforecast"):
    from neuralforecast import core
    from neuralforecast.common._base_model import BaseModel
    from neuralforecast.losses.pytorch import MAE

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
LOCATED = ("Normal", "StudentT")
LOCATIONS = ("-loc", "-mu")  # beginnings of the names of parameters of a distribution


class RRU(BaseModel):  # type: ignore[misc]
    """The network of rru's own forecasts: a linear forecast, and what recurrent layers that read patches add to it.

    The linear forecast is found from the training part before training. It does not depend on the level and size of
    windows, so that every `scaler_type` works. Training is quiet and writes no logs, unless the trainer's arguments say
    otherwise (`logger`, `enable_progress_bar`, `enable_model_summary`).

    **Arguments:**

    - `h`, `input_size`: steps to forecast, and steps known before; -1 is three times `h`.
    - `cell`: `rru`, `gru`, `lstm` or `mogrifier`.
    - `hidden_size`, `num_layers`, `dropout`: of the recurrent layers.
    - `patch`: steps that the layers read at once; must divide `input_size`. Default: chosen by it.
    - `season`: steps after which a pattern repeats. Default: found in the series.
    - `recurrent`: whether to forecast step by step, as `GRU(recurrent=True)` does, without the linear forecast.
    - others: as for the models of neuralforecast.
    """

    EXOGENOUS_FUTR = True
    EXOGENOUS_HIST = True
    EXOGENOUS_STAT = True
    MULTIVARIATE = False
    RECURRENT = False
    rnn_state: Tensor | tuple[Tensor, ...] | None

    def __init__(
        self,
        h: int,
        input_size: int = -1,
        inference_input_size: int | None = None,
        h_train: int = 1,
        cell: str = "rru",
        hidden_size: int = 64,
        num_layers: int = 1,
        dropout: float = 0.1,
        patch: int | None = None,
        season: int | None = None,
        recurrent: bool = False,
        futr_exog_list: Sequence[str] | None = None,
        hist_exog_list: Sequence[str] | None = None,
        stat_exog_list: Sequence[str] | None = None,
        exclude_insample_y: bool = False,
        loss: nn.Module = MAE(),  # noqa: B008 (as all models of neuralforecast have it)
        valid_loss: nn.Module | None = None,
        max_steps: int = 300,
        learning_rate: float = 2e-3,
        num_lr_decays: int = 3,
        early_stop_patience_steps: int = -1,
        val_monitor: str = "ptl/val_loss",
        val_check_steps: int = 100,
        batch_size: int = 32,
        valid_batch_size: int | None = None,
        windows_batch_size: int = 128,
        inference_windows_batch_size: int = 1024,
        start_padding_enabled: bool = False,
        training_data_availability_threshold: float | list[float] = 0.0,
        step_size: int = 1,
        scaler_type: str = "standard",
        random_seed: int = 1,
        drop_last_loader: bool = False,
        alias: str | None = None,
        optimizer: Any = None,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        lr_scheduler: Any = None,
        lr_scheduler_kwargs: Mapping[str, Any] | None = None,
        dataloader_kwargs: Mapping[str, Any] | None = None,
        **trainer_kwargs: Any,
    ) -> None:
        self.RECURRENT = recurrent
        super().__init__(
            h=h,
            input_size=input_size,
            inference_input_size=inference_input_size,
            h_train=h_train,
            futr_exog_list=futr_exog_list,
            hist_exog_list=hist_exog_list,
            stat_exog_list=stat_exog_list,
            exclude_insample_y=exclude_insample_y,
            loss=loss,
            valid_loss=valid_loss,
            max_steps=max_steps,
            learning_rate=learning_rate,
            num_lr_decays=num_lr_decays,
            early_stop_patience_steps=early_stop_patience_steps,
            val_monitor=val_monitor,
            val_check_steps=val_check_steps,
            batch_size=batch_size,
            valid_batch_size=valid_batch_size,
            windows_batch_size=windows_batch_size,
            inference_windows_batch_size=inference_windows_batch_size,
            start_padding_enabled=start_padding_enabled,
            training_data_availability_threshold=training_data_availability_threshold,
            step_size=step_size,
            scaler_type=scaler_type,
            random_seed=random_seed,
            drop_last_loader=drop_last_loader,
            alias=alias,
            optimizer=optimizer,
            optimizer_kwargs=optimizer_kwargs,
            lr_scheduler=lr_scheduler,
            lr_scheduler_kwargs=lr_scheduler_kwargs,
            dataloader_kwargs=dataloader_kwargs,
            **QUIET | trainer_kwargs,
        )
        options = NetworkOptions(cell, hidden_size, num_layers, dropout, patch, season)
        if recurrent:
            inputs = 1 + self.hist_exog_size + self.stat_exog_size + self.futr_exog_size
            self.layers = options.layers(inputs, batch_first=True)
            self.projection = nn.Linear(self.layers.output_size, self.loss.outputsize_multiplier)
        else:
            known = self.futr_exog_size + self.stat_exog_size
            shape = window_shape(self.input_size, self.h, options, self.hist_exog_size, known)
            self.network = WindowNetwork(shape, located(self.loss), options)

    def on_fit_start(self) -> None:
        super().on_fit_start()
        if not self.RECURRENT:
            self.network.fit_linear(self._training_parts())

    def _training_parts(self) -> list[NDArray[np.float64]]:
        """Return the values of each series, without those to validate and test on; NaN is missing."""
        dataset = self.trainer.datamodule.dataset
        if not hasattr(dataset, "indptr"):  # files that are read one at a time
            return []
        columns = list(dataset.temporal_cols)
        known = dataset.temporal[:, columns.index("available_mask")] > 0
        values = torch.where(known, dataset.temporal[:, dataset.y_idx], torch.nan).double().numpy()
        parts = np.split(values, dataset.indptr[1:-1])
        held = self.val_size + self.test_size
        return [part[: len(part) - held] for part in parts]

    def forward(self, windows_batch: Mapping[str, Tensor | None]) -> Tensor:
        """Return the outputs of the loss for each step (B, h, outputs), from windows of neuralforecast."""
        values, known = windows_batch["insample_y"], windows_batch["insample_mask"]  # (B, C, 1)
        assert values is not None
        past, static, future = (windows_batch[name] for name in ("hist_exog", "stat_exog", "futr_exog"))
        if self.RECURRENT:
            return self._step_by_step(values, past, static, future)
        known = torch.ones_like(values) if known is None else known
        if static is not None and self.stat_exog_size:
            repeated = static.unsqueeze(1).expand(-1, self.input_size + self.h, -1)  # (B, C + H, S)
            future = repeated if future is None or not self.futr_exog_size else torch.cat([future, repeated], dim=-1)
        return self.network.outputs(values[..., 0], known.reshape(values.shape[:2]), past, future)

    def _step_by_step(
        self, values: Tensor, past: Tensor | None, static: Tensor | None, future: Tensor | None
    ) -> Tensor:
        """Return the outputs (B, h, outputs) of layers that read a step at a time."""
        steps, inputs = values.shape[1], [values]
        inputs += [past] if past is not None and self.hist_exog_size else []
        inputs += [static.unsqueeze(1).expand(-1, steps, -1)] if static is not None and self.stat_exog_size else []
        inputs += [future[:, :steps]] if future is not None and self.futr_exog_size else []
        output, state = self.layers(torch.cat(inputs, dim=-1), self.rnn_state if self.maintain_state else None)
        if self.maintain_state:
            self.rnn_state = state
        outputs: Tensor = self.projection(output)[:, -self.h :]
        return outputs


def located(loss: Any) -> list[bool]:
    """Return for each output of a loss whether it is a location: all values and quantiles, of a distribution some."""
    count = int(loss.outputsize_multiplier)
    if not getattr(loss, "is_distribution_output", False):
        return [True] * count
    names = [str(name) for name in getattr(loss, "param_names", [])]
    if len(names) != count or getattr(loss, "distribution", LOCATED[0]) not in LOCATED:
        return [False] * count
    return [name.startswith(LOCATIONS) for name in names]


core.MODEL_FILENAME_DICT.setdefault("rru", RRU)  # else NeuralForecast.save and load know only their own models
