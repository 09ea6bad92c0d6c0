"""A cell and the inputs of its steps, on which native steps with gradients are compared with the reference."""

import pytest
import torch

import rru
from rru.scan.native import gradient_step
from tests.scan.case import assert_near
from tests.variants import randomize, state_parts


class Steps:
    """A cell with random weights, and the inputs of six steps."""

    def __init__(self, build=lambda: rru.RRUCell(5, 7, dtype=torch.float64), batch=3):
        self.cell = randomize(build())
        with torch.no_grad():
            for weight in self.cell.parameters():
                if weight.dim() > 1:
                    weight.div_(weight.shape[1] ** 0.5)  # so that the states stay small
        weight = next(self.cell.parameters())
        self.x = torch.randn(6, batch, self.cell.input_size, dtype=weight.dtype, requires_grad=True)
        self.state = tuple(
            torch.randn(batch, self.cell.hidden_size, dtype=weight.dtype, requires_grad=True)
            for _ in self.cell.state_names
        )

    def run(self, cell=None, x=None, state=None):
        """Outputs (T, B, p) and the last state."""
        state = self.cell.public_state(self.state) if state is None else state
        outputs = []
        torch.manual_seed(0)  # the same dropout every time
        for step in self.x if x is None else x:
            output, state = (cell or self.cell)(step, state)
            outputs.append(output)
        return torch.stack(outputs), state

    def total(self, **arguments):
        outputs, last = self.run(**arguments)
        return (outputs * outputs.detach().cos()).sum() + sum(part.pow(2).sum() for part in state_parts(last))

    @property
    def tensors(self):
        return [self.x, *self.state, *self.cell.parameters()]

    def gradients(self):
        return torch.autograd.grad(self.total(), self.tensors)

    def assert_like_reference(self, compute, tolerance=1e-10):
        """What `compute` returns is the same, up to `tolerance`, if every step runs on the reference."""
        computed = compute()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gradient_step, "step", lambda *given: None)
            wanted = compute()
        assert len(computed)
        assert_near(computed, wanted, tolerance)
