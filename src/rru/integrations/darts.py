"""Modules for darts: give them to its models as `model=`.

```
from darts.models import BlockRNNModel
from rru.integrations.darts import RRUBlockModule

model = BlockRNNModel(36, 12, model=RRUBlockModule, hidden_dim=64)
model.fit(series)
model.predict(12)
```
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.extras import extra
from rru.integrations.network import NetworkOptions, WindowNetwork, window_shape

with extra("darts"):
    from darts.models.forecasting.block_rnn_model import CustomBlockRNNModule
    from darts.models.forecasting.pl_forecasting_module import io_processor
    from darts.models.forecasting.rnn_model import _RNNModule
    from darts.utils.data.torch_datasets.utils import PLModuleInput, PLModuleOutput
    from darts.utils.likelihood_models.torch import (
        CauchyLikelihood,
        GaussianLikelihood,
        GumbelLikelihood,
        LaplaceLikelihood,
        QuantileRegression,
    )
    from darts.utils.serialization import add_safe_globals

    LOCATED = (CauchyLikelihood, GaussianLikelihood, GumbelLikelihood, LaplaceLikelihood)
    """Likelihoods whose first parameter is where values lie."""


class RRUBlockModule(CustomBlockRNNModule):  # type: ignore[misc]
    """The network of rru's own forecasts, for `BlockRNNModel(model=RRUBlockModule)`.

    A linear forecast, which is found from the series before training, and what recurrent layers that read patches of
    the input add to it. The components of a series share the network. All covariates and likelihoods of `BlockRNNModel`
    work; the linear forecast counts for values, quantiles, and the locations of distributions. Series need not be
    scaled, but for likelihoods with a width, such as a Gaussian one.

    Its arguments are those of `BlockRNNModel`; `hidden_fc_sizes` and `activation` are not used. A subclass may set:

    - `cell`: `rru`, `gru`, `lstm` or `mogrifier`.
    - `patch`: steps that the layers read at once; must divide `input_chunk_length`. Default: chosen by it.
    - `season`: steps after which a pattern repeats. Default: found in the series.
    """

    cell: ClassVar[str] = "rru"
    patch: ClassVar[int | None] = None
    season: ClassVar[int | None] = None
    started: Tensor  # (), whether the linear forecast was found

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        add_safe_globals([cls])  # else darts loads models with it only if trusted

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        options = NetworkOptions(self.cell, self.hidden_dim, self.num_layers, self.dropout, self.patch, self.season)
        past = self.input_size - self.target_size - self.future_cov_dim  # past and static covariates
        shape = window_shape(self.input_chunk_length, self.output_chunk_length, options, past, self.future_cov_dim)
        self.network = WindowNetwork(shape, located(self.likelihood, self.nr_params), options)
        self.register_buffer("started", torch.tensor(False))

    def on_train_start(self) -> None:
        super().on_train_start()
        if not self.started:
            self.network.fit_linear(_components(self.trainer.train_dataloader.dataset), self.output_chunk_shift)
            self.started.fill_(True)

    @io_processor  # type: ignore[untyped-decorator]
    def forward(self, x_in: PLModuleInput) -> PLModuleOutput:
        """Return the parameters of the likelihood (B, output_chunk_length, components, parameters)."""
        target = x_in.past_target  # (B, C, components)
        batch, context, components = target.shape
        past = [] if x_in.past_covariates is None else [x_in.past_covariates]
        if x_in.static_covariates is not None:
            past.append(x_in.static_covariates.reshape(batch, 1, -1).expand(-1, context, -1))
        future = None
        if x_in.future_covariates is not None:
            future = torch.cat([x_in.historic_future_covariates, x_in.future_covariates], dim=1)  # (B, C + H, F)
        values = target.transpose(1, 2).reshape(batch * components, context)
        outputs = self.network.outputs(
            values,
            torch.ones_like(values),
            torch.cat(past, dim=-1).repeat_interleave(components, dim=0) if past else None,
            None if future is None else future.repeat_interleave(components, dim=0),
        )  # (B components, H, parameters)
        shaped = outputs.reshape(batch, components, self.output_chunk_length, self.nr_params).transpose(1, 2)
        return PLModuleOutput(prediction=shaped)


class RRUModule(_RNNModule):  # type: ignore[misc]
    """RRUs that read a step at a time and forecast the next, for `RNNModel(model=RRUModule)`.

    Its arguments are those of `RNNModel`; `dropout` acts inside every step. A subclass may set `cell`. Scale series and
    covariates, as for all models of darts that learn from values.
    """

    cell: ClassVar[str] = "rru"

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        add_safe_globals([cls])

    def __init__(self, name: str = "GRU", **arguments: Any) -> None:  # saved models have the name of darts' own layer
        super().__init__(name=name, **arguments)
        options = NetworkOptions(self.cell, self.hidden_dim, self.num_layers, self.dropout)
        self.rnn = options.layers(self.input_size, batch_first=True)
        self.V = nn.Linear(self.rnn.output_size, self.target_size * self.nr_params)


def located(likelihood: Any, parameters: int) -> list[bool]:
    """Return for each parameter of a likelihood whether it is a location; without one, values are."""
    if likelihood is None or isinstance(likelihood, QuantileRegression):
        return [True] * parameters
    return [isinstance(likelihood, LOCATED), *[False] * (parameters - 1)]


def _components(dataset: Any) -> list[NDArray[np.float64]]:
    """Return the values (T,) of every component of the series that a data set is made of."""
    series = getattr(dataset, "series", None) or []
    return [column for each in series for column in each.all_values(copy=False)[:, :, 0].astype(np.float64).T]


add_safe_globals([RRUBlockModule, RRUModule])  # else darts loads models with these modules only if trusted
