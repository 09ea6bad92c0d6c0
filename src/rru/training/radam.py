"""The paper's optimiser: RAdam with two changes and adaptive gradient clipping for each tensor."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

_Group = dict[str, Any]  # as torch types them
CLIP_FLOOR = 0.01  # norm that is never clipped: the first gradients have no history to compare with


class RAdam(Optimizer):
    """Rectified Adam as the paper's experiments use it.

    It differs from `torch.optim.RAdam` in three ways: the momentum averages gradients *after* dividing them by the root
    of the second moment; while the variance is not yet tractable, it still steps by that momentum; and each tensor's
    gradient can be clipped relative to the tensor's earlier gradients.

    ```python
    optimiser = RAdam(model.parameters(), lr=0.005, clip=1.5)
    ```

    **Arguments:**

    - `params`: tensors, named tensors or groups of them, as for any torch optimiser.
    - `lr`: learning rate.
    - `betas`: decay rates of the momentum and the second moment.
    - `eps`: added to the root of the second moment.
    - `clip`: before the moments are updated, limits the norm of each tensor's gradient to
      clip * sqrt(sum(v) / (1 - beta2^t)) + 0.01, where v is the second moment of the earlier steps. None: no limit.

    A tensor without a gradient is skipped, and its step count t does not increase.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[_Group] | Iterable[tuple[str, Tensor]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-7,
        clip: float | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "clip": clip})

    def add_param_group(self, param_group: _Group) -> None:
        _check({**self.defaults, **param_group})
        super().add_param_group(param_group)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every tensor that has a gradient.

        **Arguments:** `closure`: recomputes the gradients and returns the loss; optional.

        **Returns:** the loss that `closure` returned, or None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            for param in params:
                self._start(param)
            # The fast foreach kernels need all tensors on one device and of one dtype.
            for kind in dict.fromkeys((param.device, param.dtype) for param in params):
                self._update([param for param in params if (param.device, param.dtype) == kind], group)
        return loss

    def _start(self, param: Tensor) -> None:
        """Check a tensor's gradient, and create its optimiser state on the first step."""
        assert param.grad is not None
        if param.grad.is_sparse or param.is_complex():
            kind = "sparse" if param.grad.is_sparse else str(param.dtype)
            raise TypeError(f"gradients must be dense and real, got a {kind} one of shape {tuple(param.shape)}")
        if not self.state[param]:
            self.state[param] = {
                "step": torch.tensor(0),
                "momentum": torch.zeros_like(param, memory_format=torch.preserve_format),
                "second_moment": torch.zeros_like(param, memory_format=torch.preserve_format),
                "magnitude": torch.zeros((), dtype=param.dtype, device=param.device),
            }

    def _update(self, params: list[Tensor], group: _Group) -> None:
        beta1, beta2 = group["betas"]
        grads = [param.grad for param in params if param.grad is not None]
        steps = [self.state[param]["step"] for param in params]
        momenta = [self.state[param]["momentum"] for param in params]
        seconds = [self.state[param]["second_moment"] for param in params]

        torch._foreach_add_(steps, 1)
        counts = [int(step) for step in steps]
        known = {t: _factors(t, beta1, beta2) for t in set(counts)}
        factors = [known[t] for t in counts]
        scales = _clip_scales(grads, [self.state[param]["magnitude"] for param in params], factors, group["clip"])

        torch._foreach_mul_(seconds, beta2)
        torch._foreach_addcmul_(seconds, grads, grads, [(1 - beta2) * scale**2 for scale in scales])

        # grad / (sqrt(v / c) + eps) is root(c) * grad / (sqrt(v) + root(c) * eps), which saves a pass over memory.
        roots = torch._foreach_sqrt(seconds)
        for param, magnitude in zip(params, torch._foreach_norm(roots), strict=True):
            self.state[param]["magnitude"] = magnitude  # sqrt(sum(v)), used to clip the next gradient
        torch._foreach_add_(roots, [factor.root * group["eps"] for factor in factors])
        weights = [(1 - beta1) * scale * factor.root for scale, factor in zip(scales, factors, strict=True)]
        torch._foreach_mul_(momenta, beta1)
        torch._foreach_addcdiv_(momenta, grads, roots, weights)

        lengths = {factor.step_length for factor in factors}
        if len(lengths) == 1:
            torch._foreach_add_(params, momenta, alpha=-group["lr"] * lengths.pop())
        else:  # some tensors have had fewer gradients than others
            torch._foreach_add_(
                params, torch._foreach_mul(momenta, [-group["lr"] * factor.step_length for factor in factors])
            )


class _Factors(NamedTuple):
    """The factors that depend only on the step count t."""

    root: float  # sqrt(1 - beta2^t), bias correction of the second moment's root
    step_length: float  # bias correction of the momentum, times the rectification


def _factors(t: int, beta1: float, beta2: float) -> _Factors:
    correction = 1 - beta2**t
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * t * beta2**t / correction  # length of the simple moving average (SMA)
    rectification = 1.0
    if length >= 5:
        rectification = math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
    return _Factors(math.sqrt(correction), rectification / (1 - beta1**t))


def _clip_scales(
    grads: list[Tensor], magnitudes: list[Tensor], factors: list[_Factors], clip: float | None
) -> list[float]:
    """Return the factor to scale each gradient by: 1 if its norm is within the limit or is NaN."""
    if clip is None:
        return [1.0] * len(grads)
    norms = torch.stack(torch._foreach_norm(grads)).tolist()
    before = torch.stack(magnitudes).tolist()
    limits = [clip * size / factor.root + CLIP_FLOOR for size, factor in zip(before, factors, strict=True)]
    return [limit / norm if norm > limit else 1.0 for norm, limit in zip(norms, limits, strict=True)]


def _check(group: _Group) -> None:
    lr, betas, eps, clip = group["lr"], group["betas"], group["eps"], group["clip"]
    for name, value in {"lr": lr, "eps": eps, "clip": 0.0 if clip is None else clip}.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be 0 or more and finite, got {value}")
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas must be two numbers, at least 0 and below 1, got {betas}")
